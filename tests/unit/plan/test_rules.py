"""Each rule, before and after; larger ones have a file of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import tidegate as tg
from tests.unit.plan.plans import before, shape
from tidegate.pipeline.nodes import STAR
from tidegate.plan import RULES, Move, physical_plan
from tidegate.plan.bounds import ALIGNMENT_TIMEOUT, RUN_DEADLINE
from tidegate.plan.physical import (
    ALL_UPSTREAMS,
    MONITOR,
    FinalDistinct,
    MergeAggregate,
    PartialAggregate,
    PhysicalBarrier,
    PhysicalPlan,
    PhysicalStage,
    PhysicalUnion,
    Project,
    Scan,
)
from tidegate.plan.rules.fuse_narrow import fuse_narrow
from tidegate.plan.rules.insert_barrier_for_fan_in import insert_barrier_for_fan_in
from tidegate.plan.rules.prune_columns import prune_columns
from tidegate.plan.rules.split_aggregates import split_aggregates
from tidegate.plan.rules.split_distincts import split_distincts
from tidegate.plan.rules.split_tops import split_tops

if TYPE_CHECKING:
    from collections.abc import Callable


def test_barriers_are_inserted_last() -> None:
    assert RULES[-1] is insert_barrier_for_fan_in


# --- split_aggregates ------------------------------------------------------------------------


def test_an_aggregate_is_split_around_its_exchange(shop: tg.Pipeline, sales: tg.Stream) -> None:
    sales.aggregate(by="a", total="sum(b)", shards=3).sink("totals")
    plan = before(shop, split_aggregates)
    assert shape(plan) == [
        "s1 [Scan] x4",
        "s2 [WholeAggregate] x3 <- exchange s1",
        "s3 [WriteSink] x1 <- gather s2",
        "c collect <- s3",
    ]
    assert shape(split_aggregates(plan)) == [
        "s1 [Scan] x4",
        "s2 [PartialAggregate] x4 <- s1",
        "s3 [MergeAggregate] x3 <- exchange s2",
        "s4 [WriteSink] x1 <- gather s3",
        "c collect <- s4",
    ]


def test_an_aggregate_without_keys_is_gathered(shop: tg.Pipeline, sales: tg.Stream) -> None:
    sales.aggregate(rows="count(*)", shards=3).sink("count")
    plan = split_aggregates(before(shop, split_aggregates))
    assert "s3 [MergeAggregate] x1 <- gather s2" in shape(plan)


def test_both_halves_of_an_aggregate_carry_the_same_columns(
    shop: tg.Pipeline, sales: tg.Stream
) -> None:
    sales.aggregate(by="a", total="sum(b)", mean="avg(c)", exact=True).sink("totals")
    plan = split_aggregates(before(shop, split_aggregates))
    operators = [operator for stage in plan.stages for operator in stage.operators]
    (partial,) = (operator for operator in operators if isinstance(operator, PartialAggregate))
    (merge,) = (operator for operator in operators if isinstance(operator, MergeAggregate))
    assert (partial.by, partial.columns) == (merge.by, merge.columns)
    assert partial.exact


# --- split_distincts -------------------------------------------------------------------------


def test_a_distinct_drops_repeated_rows_of_a_batch_before_its_exchange(
    shop: tg.Pipeline, sales: tg.Stream
) -> None:
    sales.distinct().sink("once")
    plan = before(shop, split_distincts)
    assert "s2 [FinalDistinct] x4 <- exchange s1" in shape(plan)
    assert shape(split_distincts(plan)) == [
        "s1 [Scan] x4",
        "s2 [PartialDistinct] x4 <- s1",
        "s3 [FinalDistinct] x4 <- exchange s2",
        "s4 [WriteSink] x1 <- gather s3",
        "c collect <- s4",
    ]


def test_a_distinct_is_exchanged_by_all_columns_from_any_number_of_shards(
    shop: tg.Pipeline, sales: tg.Stream
) -> None:
    sales.top(5, by="a desc").distinct().sink("once")
    plan = physical_plan(shop)
    (edge,) = (it for node in plan.nodes for it in node.inputs if it.move is Move.EXCHANGE)
    assert edge.keys == (STAR,)
    assert plan.by_id[edge.upstream].shards == 1


@pytest.mark.parametrize("shards", [1, 4])
def test_a_distinct_is_released_by_the_monitor_on_any_number_of_shards(shards: int) -> None:
    shop = tg.Pipeline("shop", shards=shards)
    shop.source("sales", "a int").distinct().sink("once")
    plan = physical_plan(shop)
    (stage,) = (it for it in plan.stages if isinstance(it.operators[0], FinalDistinct))
    barrier = plan.by_id[stage.inputs[0].upstream]
    assert isinstance(barrier, PhysicalBarrier)
    assert (barrier.shards, barrier.released_by) == (shards, MONITOR)


# --- split_tops ------------------------------------------------------------------------------


def test_a_top_ranks_each_shard_before_gathering(shop: tg.Pipeline, sales: tg.Stream) -> None:
    sales.top(3, by="b desc", per="a").sink("best")
    plan = before(shop, split_tops)
    assert "s2 [FinalTop] x1 <- gather s1" in shape(plan)
    assert shape(split_tops(plan))[1:3] == [
        "s2 [PartialTop] x4 <- s1",
        "s3 [FinalTop] x1 <- gather s2",
    ]


def test_a_top_over_one_shard_ranks_once(sales: tg.Stream, shop: tg.Pipeline) -> None:
    sales.top(9, by="a desc").top(3, by="b desc").sink("best")
    plan = split_tops(before(shop, split_tops))
    assert "s4 [FinalTop] x1 <- s3" in shape(plan)


# --- prune_columns ---------------------------------------------------------------------------


def scanned(plan: PhysicalPlan) -> dict[str, list[str]]:
    return {
        operator.source: [field.name for field in operator.columns]
        for stage in plan.stages
        for operator in stage.operators
        if isinstance(operator, Scan)
    }


def test_a_source_reads_what_filters_selects_and_aggregates_name(
    shop: tg.Pipeline, sales: tg.Stream
) -> None:
    sales.filter("b > 1").select(x="a + C").aggregate(by="x", n="count(*)").sink("counts")
    assert scanned(before(shop, prune_columns)) == {"sales": ["a", "b", "c", "d"]}
    assert scanned(prune_columns(before(shop, prune_columns))) == {"sales": ["a", "b", "c"]}


def test_a_sink_reads_everything(shop: tg.Pipeline, sales: tg.Stream) -> None:
    sales.filter("b > 1").sink("all")
    assert scanned(physical_plan(shop)) == {"sales": ["a", "b", "c", "d"]}


def test_a_function_reads_everything(shop: tg.Pipeline, sales: tg.Stream) -> None:
    sales.transform(lambda rows: rows).select("a").sink("some")
    assert scanned(physical_plan(shop)) == {"sales": ["a", "b", "c", "d"]}


def test_a_top_reads_everything_because_all_columns_decide_its_ties(
    shop: tg.Pipeline, sales: tg.Stream
) -> None:
    sales.top(1, by="a desc").select("b").sink("first")
    assert scanned(prune_columns(before(shop, prune_columns))) == {"sales": ["a", "b", "c", "d"]}


def test_a_distinct_reads_everything_because_it_compares_all_columns(
    shop: tg.Pipeline, sales: tg.Stream
) -> None:
    sales.filter("a > 1").distinct().select("b").sink("some")
    assert scanned(physical_plan(shop)) == {"sales": ["a", "b", "c", "d"]}


def test_a_distinct_reads_only_what_is_selected_before_it(
    shop: tg.Pipeline, sales: tg.Stream
) -> None:
    sales.select("a", "b").distinct().aggregate(n="count(*)").sink("count")
    assert scanned(physical_plan(shop)) == {"sales": ["a", "b"]}


def test_a_shared_aggregate_computes_what_any_reader_reads(
    shop: tg.Pipeline, sales: tg.Stream
) -> None:
    shared = sales.select("a", "b", "c").aggregate(by="a", b="sum(b)", c="sum(c)", d="count(*)")
    shared.select("a").sink("one")
    shared.select("b").sink("two")
    assert scanned(physical_plan(shop)) == {"sales": ["a", "b"]}


def test_a_star_reads_what_its_readers_read(shop: tg.Pipeline, sales: tg.Stream) -> None:
    sales.select("*", a="b + 1").select("a", "c").sink("some")
    assert scanned(physical_plan(shop)) == {"sales": ["b", "c"]}


@pytest.mark.parametrize(
    "lead",
    [
        lambda rows: rows.filter("hash(*) % 2 = 0").select("a"),
        lambda rows: rows.select(h="struct(*)"),
        lambda rows: rows.select("a", h="hash(* except (b))").select("h"),
        lambda rows: rows.select("*", h="hash(*)").select("h"),
        lambda rows: rows.aggregate(by="a", last="max(struct(*))"),
        lambda rows: rows.aggregate(by="a", n="count(*) filter (where hash(*) > 0)"),
        lambda rows: rows.select("a", "b", "c", "d").filter("hash(*) % 2 = 0").select("b"),
    ],
)
def test_a_star_in_an_expression_reads_everything(
    shop: tg.Pipeline, sales: tg.Stream, lead: Callable[[tg.Stream], tg.Stream]
) -> None:
    lead(sales).sink("some")
    assert scanned(physical_plan(shop)) == {"sales": ["a", "b", "c", "d"]}


def test_a_star_after_a_column_reads_that_column(shop: tg.Pipeline) -> None:
    places = shop.source("places", "a int, address struct<city: string, street: string>")
    places.select(h="hash(address.*)").sink("some")
    assert scanned(physical_plan(shop)) == {"places": ["address"]}


def test_a_join_reads_its_keys_on_both_sides(shop: tg.Pipeline, sales: tg.Stream) -> None:
    stores = shop.source("stores", "a int, name string, city string")
    sales.join(stores, on="a").select("name", "b").sink("names")
    assert scanned(physical_plan(shop)) == {"sales": ["a", "b"], "stores": ["a", "name"]}


def test_a_computed_column_without_readers_is_not_computed(
    shop: tg.Pipeline, sales: tg.Stream
) -> None:
    sales.select("a", x="b + 1", y="c + 1").aggregate(by="a", s="sum(x)", t="sum(y)").select(
        "a", "s"
    ).sink("some")
    plan = physical_plan(shop)
    assert scanned(plan) == {"sales": ["a", "b"]}
    (project, *_) = (
        operator
        for stage in plan.stages
        for operator in stage.operators
        if isinstance(operator, Project)
    )
    assert [column.name for column in project.columns] == ["a", "x"]


def test_counting_rows_reads_one_column(shop: tg.Pipeline, sales: tg.Stream) -> None:
    sales.aggregate(rows="count(*)").sink("count")
    assert scanned(physical_plan(shop)) == {"sales": ["a"]}


def test_a_union_takes_the_same_columns_of_inputs_that_still_carry_others(
    shop: tg.Pipeline, sales: tg.Stream
) -> None:
    more = shop.source("more", "a int, b int, c int, d int")
    sales.filter("d > 1").union(more).select("a").sink("some")
    plan = physical_plan(shop)
    assert scanned(plan) == {"sales": ["a", "d"], "more": ["a"]}
    (union,) = (
        operator
        for stage in plan.stages
        for operator in stage.operators
        if isinstance(operator, PhysicalUnion)
    )
    assert union.columns == ("a",)


def test_a_union_of_which_no_column_is_read_keeps_all(shop: tg.Pipeline, sales: tg.Stream) -> None:
    more = shop.source("more", "b int, a int, c int, d int")
    sales.union(more).aggregate(rows="count(*)").sink("count")
    plan = physical_plan(shop)
    assert scanned(plan) == {"sales": ["a", "b", "c", "d"], "more": ["b", "a", "c", "d"]}


# --- fuse_narrow -----------------------------------------------------------------------------


def test_narrow_operators_run_where_their_rows_are(shop: tg.Pipeline, sales: tg.Stream) -> None:
    counts = sales.filter("a > 1").select("a", "b").aggregate(by="a", n="count(*)")
    counts.filter("n > 1").select("n").sink("counts")
    plan = fuse_narrow(before(shop, fuse_narrow))
    assert shape(plan) == [
        "s1 [Scan, Where, Project, PartialAggregate] x4",
        "s2 [MergeAggregate, Where, Project] x4 <- exchange s1",
        "s3 [WriteSink] x1 <- gather s2",
        "c collect <- s3",
    ]


def test_a_sink_joins_a_stage_of_one_shard(shop: tg.Pipeline, sales: tg.Stream) -> None:
    sales.aggregate(by="a", n="count(*)", shards=1).filter("n > 1").sink("counts")
    assert "s2 [MergeAggregate, Where, WriteSink] x1 <- exchange s1" in shape(
        fuse_narrow(before(shop, fuse_narrow))
    )


def test_a_stage_with_two_readers_stays_one_stage(shop: tg.Pipeline, sales: tg.Stream) -> None:
    shared = sales.transform(lambda rows: rows)
    shared.filter("b > 1").sink("one")
    shared.filter("c > 1").sink("two")
    assert shape(fuse_narrow(before(shop, fuse_narrow))) == [
        "s1 [Scan, Apply] x4",
        "s2 [Where] x4 <- s1",
        "s3 [WriteSink] x1 <- gather s2",
        "s4 [Where] x4 <- s1",
        "s5 [WriteSink] x1 <- gather s4",
        "c collect <- s3 <- s5",
    ]


def test_a_union_of_streams_on_the_same_shards_moves_nothing(
    shop: tg.Pipeline, sales: tg.Stream
) -> None:
    sales.filter("a > 1").union(sales.filter("a < 1")).select("a").sink("both")
    assert "s3 [PhysicalUnion, Project] x4 <- s1 <- s2" in shape(
        fuse_narrow(before(shop, fuse_narrow))
    )


def test_a_union_of_streams_on_different_shards_gathers(
    shop: tg.Pipeline, sales: tg.Stream
) -> None:
    sales.select("a").union(sales.top(1, by="a asc").select("a")).sink("both")
    (union,) = (line for line in shape(physical_plan(shop)) if "Union" in line)
    assert "x1" in union


# --- insert_barrier_for_fan_in ---------------------------------------------------------------


def barriers(plan: PhysicalPlan) -> dict[str, PhysicalBarrier]:
    return {node.id: node for node in plan.nodes if isinstance(node, PhysicalBarrier)}


def test_two_sinks_meet_in_a_barrier_below_the_collector(
    shop: tg.Pipeline, sales: tg.Stream
) -> None:
    one = sales.top(1, by="a asc")
    one.sink("first")
    one.sink("again")
    plan = before(shop, insert_barrier_for_fan_in)
    assert shape(plan)[-1] == "c collect <- s3 <- s4"
    assert shape(insert_barrier_for_fan_in(plan))[-2:] == [
        "bc barrier(2) x1 <- s3 <- s4",
        "c collect <- bc",
    ]


def test_one_sink_needs_no_barrier_below_the_collector(shop: tg.Pipeline, sales: tg.Stream) -> None:
    sales.sink("all")
    assert "bc" not in barriers(physical_plan(shop))


def test_a_gather_counts_every_upstream_shard(shop: tg.Pipeline, sales: tg.Stream) -> None:
    sales.sink("all")
    barrier = barriers(physical_plan(shop))["b2"]
    assert barrier.upstream_count == 4
    assert (barrier.released_by, barrier.bound) == (ALL_UPSTREAMS, ALIGNMENT_TIMEOUT)


def test_an_aggregate_is_released_by_the_monitor(shop: tg.Pipeline, sales: tg.Stream) -> None:
    sales.aggregate(by="a", n="count(*)", shards=2).sink("counts")
    barrier = barriers(physical_plan(shop))["b2"]
    assert (barrier.upstream_count, barrier.shards) == (4, 2)
    assert (barrier.released_by, barrier.bound) == (MONITOR, RUN_DEADLINE)


def test_an_aggregate_has_a_barrier_even_for_a_single_channel(sales: tg.Stream) -> None:
    alone = tg.Pipeline("alone")
    alone.source("sales", "a int").aggregate(by="a", n="count(*)").sink("counts")
    assert barriers(physical_plan(alone))["b2"].upstream_count == 1


def test_a_self_join_has_one_barrier_with_two_edges_to_one_child() -> None:
    alone = tg.Pipeline("alone")
    sales = alone.source("sales", "a int")
    sales.join(sales, on="a").sink("pairs")
    assert shape(physical_plan(alone)) == [
        "s1 [Scan] x1",
        "b2 barrier(2) x1 <- s1 <- s1",
        "s2 [PhysicalJoin, WriteSink] x1 <- b2",
        "c collect <- s2",
    ]


def test_a_barrier_keeps_the_sides_of_a_join_in_order(shop: tg.Pipeline, sales: tg.Stream) -> None:
    stores = shop.source("stores", "a int, name string")
    stores.join(sales.top(1, by="a asc"), on="a").sink("names")
    plan = physical_plan(shop)
    (join,) = (line for line in shape(plan) if "Join" in line)
    guard = barriers(plan)[join.split(" <- ")[1]]
    left, right = (plan.by_id[edge.upstream] for edge in guard.inputs)
    assert isinstance(left, PhysicalStage)
    assert isinstance(left.operators[0], Scan)
    assert isinstance(right, PhysicalStage)
    assert guard.upstream_count == 5


def test_a_fan_in_shared_by_two_readers_has_one_barrier(
    shop: tg.Pipeline, sales: tg.Stream
) -> None:
    both = sales.filter("a > 1").union(sales.filter("a < 1"))
    both.filter("b > 1").sink("one")
    both.filter("c > 1").sink("two")
    plan = physical_plan(shop)
    unions = [line for line in shape(plan) if "Union" in line]
    assert len(unions) == 1
    assert len([barrier for barrier in barriers(plan).values() if barrier.shards == 4]) == 1


def test_barriers_rename_no_stage(shop: tg.Pipeline, sales: tg.Stream) -> None:
    sales.aggregate(by="a", n="count(*)").sink("counts")
    plan = before(shop, insert_barrier_for_fan_in)
    after = insert_barrier_for_fan_in(plan)
    assert [stage.id for stage in after.stages] == [stage.id for stage in plan.stages]
