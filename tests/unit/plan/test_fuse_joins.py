"""Joins run in the stage of their left side, where no rows move and there is no other reader."""

from __future__ import annotations

import pytest

import tidegate as tg
from tests.unit.plan.plans import before, shape
from tidegate.plan import PhysicalBarrier, PhysicalPlan, explain_physical, physical_json
from tidegate.plan import physical_plan as plan_of
from tidegate.plan.bounds import RUN_DEADLINE
from tidegate.plan.physical import MONITOR, MergeAggregate, PhysicalJoin, Scan, inputs_by_operator
from tidegate.plan.rules.fuse_joins import MOST_JOINS, fuse_joins


@pytest.fixture
def stores(shop: tg.Pipeline) -> tg.Stream:
    return shop.source("stores", "a int, name string")


@pytest.fixture
def users(shop: tg.Pipeline) -> tg.Stream:
    return shop.source("users", "b int, born date")


def fused(pipeline: tg.Pipeline) -> list[str]:
    return shape(fuse_joins(before(pipeline, fuse_joins)))


def sources(plan: PhysicalPlan, upstreams: list[str]) -> list[str]:
    stages = [stage for stage in plan.stages if stage.id in upstreams]
    return [
        operator.source
        for stage in stages
        for operator in stage.operators
        if isinstance(operator, Scan)
    ]


def test_a_ranking_is_joined_with_one_table_after_the_other_in_one_stage(
    shop: tg.Pipeline, sales: tg.Stream, stores: tg.Stream, users: tg.Stream
) -> None:
    best = sales.top(3, by="c desc", per="a")
    best.join(stores, on="a").join(users, on="b").select("name", "born").sink("best")
    assert shape(before(shop, fuse_joins)) == [
        "s1 [Scan, PartialTop] x4",
        "s2 [FinalTop] x1 <- gather s1",
        "s3 [Scan] x4",
        "s4 [PhysicalJoin] x1 <- s2 <- gather s3",
        "s5 [Scan] x4",
        "s6 [PhysicalJoin, Project, WriteSink] x1 <- s4 <- gather s5",
        "c collect <- s6",
    ]
    assert fused(shop) == [
        "s1 [Scan, PartialTop] x4",
        "s2 [Scan] x4",
        "s3 [Scan] x4",
        (
            "s4 [FinalTop, PhysicalJoin, PhysicalJoin, Project, WriteSink] x1"
            " <- gather s1 <- gather s2 <- gather s3"
        ),
        "c collect <- s4",
    ]


def test_a_stage_with_several_joins_stands_behind_one_barrier(
    shop: tg.Pipeline, sales: tg.Stream, stores: tg.Stream, users: tg.Stream
) -> None:
    sales.top(3, by="c desc").join(stores, on="a").join(users, on="b").sink("best")
    assert shape(plan_of(shop))[-3:] == [
        "b4 barrier(12) x1 <- gather s1 <- gather s2 <- gather s3",
        "s4 [FinalTop, PhysicalJoin, PhysicalJoin, WriteSink] x1 <- b4",
        "c collect <- s4",
    ]


def test_a_join_whose_left_side_is_scanned_begins_a_stage(
    shop: tg.Pipeline, sales: tg.Stream, stores: tg.Stream, users: tg.Stream
) -> None:
    sales.join(stores, on="a").join(users, on="b").sink("all")
    for shards in (1, 4):
        joins = [line for line in shape(plan_of(shop, shards=shards)) if "Join" in line]
        assert joins == ["s4 [PhysicalJoin, PhysicalJoin, WriteSink] x1 <- b4"]


def test_a_ranking_on_the_right_of_a_join_stays_a_stage(
    shop: tg.Pipeline, sales: tg.Stream, stores: tg.Stream
) -> None:
    stores.join(sales.top(3, by="c desc"), on="a").sink("best")
    assert "s4 [PhysicalJoin, WriteSink] x1 <- gather s1 <- s3" in fused(shop)


def test_a_ranking_with_another_reader_stays_a_stage(
    shop: tg.Pipeline, sales: tg.Stream, stores: tg.Stream
) -> None:
    best = sales.top(3, by="c desc")
    best.join(stores, on="a").sink("named")
    best.sink("best")
    assert "s2 [FinalTop] x1 <- gather s1" in fused(shop)


def test_a_ranking_joined_with_itself_stays_a_stage(shop: tg.Pipeline, sales: tg.Stream) -> None:
    best = sales.top(3, by="c desc")
    best.join(best, on="a").sink("pairs")
    assert "s3 [PhysicalJoin, WriteSink] x1 <- s2 <- s2" in fused(shop)


def test_rows_that_are_gathered_for_a_join_are_not_joined_where_they_are(
    shop: tg.Pipeline, sales: tg.Stream, stores: tg.Stream
) -> None:
    sales.aggregate(by="a", n="count(*)").join(stores, on="a").sink("counts")
    assert "s4 [PhysicalJoin, WriteSink] x1 <- gather s2 <- gather s3" in fused(shop)


def test_an_aggregate_on_one_shard_takes_joins_and_is_still_released_by_the_monitor(
    shop: tg.Pipeline, sales: tg.Stream, stores: tg.Stream
) -> None:
    sales.aggregate(by="a", n="count(*)", shards=1).join(stores, on="a").sink("counts")
    plan = plan_of(shop)
    assert "s3 [MergeAggregate, PhysicalJoin, WriteSink] x1 <- b3" in shape(plan)
    barrier = plan.by_id["b3"]
    assert isinstance(barrier, PhysicalBarrier)
    assert (barrier.released_by, barrier.bound) == (MONITOR, RUN_DEADLINE)
    assert barrier.upstream_count == 8


def test_an_aggregate_never_comes_after_another_operator(
    shop: tg.Pipeline, sales: tg.Stream, stores: tg.Stream
) -> None:
    joined = sales.top(9, by="c desc").join(stores, on="a")
    joined.aggregate(by="name", n="count(*)", shards=1).join(stores, on="name").sink("counts")
    plan = plan_of(shop)
    assert not any(
        isinstance(it, MergeAggregate) for stage in plan.stages for it in stage.operators[1:]
    )


def test_what_follows_a_join_takes_the_next_join(
    shop: tg.Pipeline, sales: tg.Stream, stores: tg.Stream, users: tg.Stream
) -> None:
    best = sales.top(3, by="c desc").join(stores, on="a").filter("name is not null")
    best.join(users, on="b").sink("best")
    (line,) = (line for line in fused(shop) if "Top]" not in line and "Join" in line)
    assert "[FinalTop, PhysicalJoin, Where, PhysicalJoin, WriteSink]" in line


def test_a_union_on_one_shard_takes_joins_after_all_its_inputs(
    shop: tg.Pipeline, sales: tg.Stream, stores: tg.Stream
) -> None:
    best, worst = sales.top(3, by="c desc"), sales.top(3, by="c asc")
    best.union(worst, best).join(stores, on="a").sink("both")
    plan = plan_of(shop)
    (stage,) = (stage for stage in plan.stages if len(stage.operators) == 3)
    first, right, _ = inputs_by_operator(stage.operators, plan.arriving(stage))
    assert len(first) == 3
    assert sources(plan, [edge.upstream for edge in right]) == ["stores"]


def test_many_joins_are_several_stages() -> None:
    deep = tg.Pipeline("deep")
    stream = deep.source("rows", "k int").top(1, by="k asc")
    for number in range(2 * MOST_JOINS + 1):
        stream = stream.join(deep.source(f"table{number}", "k int"), on="k")
    stream.sink("end")
    joins = [
        sum(isinstance(operator, PhysicalJoin) for operator in stage.operators)
        for stage in plan_of(deep).stages
    ]
    assert [count for count in joins if count] == [MOST_JOINS, MOST_JOINS, 1]


def test_explain_names_the_right_side_of_every_join(
    shop: tg.Pipeline, sales: tg.Stream, stores: tg.Stream, users: tg.Stream
) -> None:
    sales.top(3, by="c desc").join(stores, on="a").join(users, on="b", how="left").sink("best")
    plan = plan_of(shop)
    lines = [line.strip() for line in explain_physical(plan).splitlines()]
    first = lines.index("WriteSink best")
    assert lines[first : first + 4] == [
        "WriteSink best",
        "PhysicalJoin left on=[b] right=s3",
        "PhysicalJoin inner on=[a] right=s2",
        "FinalTop 3 by=[c desc]",
    ]
    assert (sources(plan, ["s2"]), sources(plan, ["s3"])) == (["stores"], ["users"])


def test_the_json_of_a_plan_names_the_right_side_of_every_join(
    shop: tg.Pipeline, sales: tg.Stream, stores: tg.Stream, users: tg.Stream
) -> None:
    sales.join(stores, on="a").join(users, on="b").sink("best")
    nodes = physical_json(plan_of(shop))["nodes"]
    assert isinstance(nodes, list)
    (operators,) = (node["operators"] for node in nodes if node["id"] == "s4")
    assert [operator.get("right") for operator in operators] == ["s2", "s3", None]
