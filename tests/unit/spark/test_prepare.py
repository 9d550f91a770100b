"""Where the rows of a stage come from and go to, by the plan alone."""

import tidegate as tg
from tidegate.plan import Move, PhysicalPlan, physical_plan
from tidegate.spark import Route
from tidegate.spark.analyze.prepare import route_of


def plan() -> PhysicalPlan:
    shop = tg.Pipeline("shop", shards=3)
    sales = shop.source("sales", "store_id bigint, amount decimal(10,2)")
    stores = shop.source("stores", "store_id bigint, city string")
    totals = sales.aggregate(by="store_id", total="sum(amount)", shards=2)
    totals.join(stores, on="store_id").sink("out")
    return physical_plan(shop)


def test_only_the_stage_below_an_exchange_has_a_route() -> None:
    routes = [route_of(plan(), stage) for stage in plan().stages]
    assert [route for route in routes if route] == [Route(("store_id",), 2)]


def test_a_join_reads_its_sides_in_order_through_the_barrier() -> None:
    *_, join = plan().stages
    left, right = plan().arriving(join)
    assert (left.move, right.move) == (Move.GATHER, Move.GATHER)
    upstreams = [plan().by_id[edge.upstream].shards for edge in (left, right)]
    assert upstreams == [2, 3]
