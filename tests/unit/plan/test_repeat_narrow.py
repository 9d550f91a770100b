"""What is cheap is computed again for each reader, within bounds; what is not is shared."""

from __future__ import annotations

import pytest

import tidegate as tg
from tests.unit.plan.plans import before, shape
from tidegate.plan import PhysicalPlan, physical_plan
from tidegate.plan.physical import Apply, MergeAggregate, PhysicalOperator, Scan
from tidegate.plan.rules.repeat_narrow import MOST_COPIES, repeat_narrow


def repeated(pipeline: tg.Pipeline) -> PhysicalPlan:
    return repeat_narrow(before(pipeline, repeat_narrow))


def operators(plan: PhysicalPlan, kind: type[PhysicalOperator]) -> list[PhysicalOperator]:
    return [
        operator
        for stage in plan.stages
        for operator in stage.operators
        if isinstance(operator, kind)
    ]


def columns_scanned(plan: PhysicalPlan) -> list[list[str]]:
    scans = (
        operator
        for stage in plan.stages
        for operator in stage.operators
        if isinstance(operator, Scan)
    )
    return [[field.name for field in scan.columns] for scan in scans]


def test_each_reader_scans_for_itself(shop: tg.Pipeline, sales: tg.Stream) -> None:
    shared = sales.filter("a > 1")
    shared.select("b").sink("one")
    shared.top(1, by="c desc").sink("two")
    assert shape(before(shop, repeat_narrow)) == [
        "s1 [Scan] x4",
        "s2 [Where] x4 <- s1",
        "s3 [Project] x4 <- s2",
        "s4 [WriteSink] x1 <- gather s3",
        "s5 [FinalTop] x1 <- gather s2",
        "s6 [WriteSink] x1 <- s5",
        "c collect <- s4 <- s6",
    ]
    assert shape(repeated(shop)) == [
        "s1 [Scan] x4",
        "s2 [Where] x4 <- s1",
        "s3 [Project] x4 <- s2",
        "s4 [WriteSink] x1 <- gather s3",
        "s5 [Scan] x4",
        "s6 [Where] x4 <- s5",
        "s7 [FinalTop] x1 <- gather s6",
        "s8 [WriteSink] x1 <- s7",
        "c collect <- s4 <- s8",
    ]


def test_each_copy_reads_only_what_its_reader_needs(shop: tg.Pipeline, sales: tg.Stream) -> None:
    shared = sales.filter("a > 1")
    shared.aggregate(by="b", n="count(*)").sink("one")
    shared.select("c").sink("two")
    assert columns_scanned(physical_plan(shop)) == [["a", "b"], ["a", "c"]]


def test_a_table_that_two_joins_read_is_scanned_by_each(
    shop: tg.Pipeline, sales: tg.Stream
) -> None:
    stores = shop.source("stores", "a int, name string, city string")
    sales.top(1, by="b desc").join(stores, on="a").select("name").sink("one")
    sales.top(1, by="c desc").join(stores, on="a").select("city").sink("two")
    everything = ["a", "b", "c", "d"]
    assert columns_scanned(physical_plan(shop)) == [
        everything,
        ["a", "name"],
        everything,
        ["a", "city"],
    ]


def test_a_reader_that_lists_a_child_twice_has_one_copy_of_it(
    shop: tg.Pipeline, sales: tg.Stream
) -> None:
    sales.join(sales, on="a").sink("pairs")
    sales.sink("all")
    assert shape(repeated(shop))[:2] == [
        "s1 [Scan] x4",
        "s2 [PhysicalJoin] x1 <- gather s1 <- gather s1",
    ]
    assert len(operators(repeated(shop), Scan)) == 2


def test_a_function_of_the_users_is_called_once_for_all_readers(
    shop: tg.Pipeline, sales: tg.Stream
) -> None:
    shared = sales.transform(lambda rows: rows)
    shared.select("a").sink("one")
    shared.select("b").sink("two")
    assert len(operators(repeated(shop), Apply)) == 1


def test_a_filter_that_runs_where_an_aggregate_is_made_is_shared(
    shop: tg.Pipeline, sales: tg.Stream
) -> None:
    few = sales.aggregate(by="a", n="count(*)").filter("n > 100")
    few.top(1, by="n desc").sink("one")
    few.top(1, by="n asc").sink("two")
    plan = physical_plan(shop)
    assert len(operators(plan, MergeAggregate)) == 1
    assert "s2 [MergeAggregate, Where] x4 <- b2" in shape(plan)


def test_a_filter_of_rows_that_others_read_as_well_is_repeated(
    shop: tg.Pipeline, sales: tg.Stream
) -> None:
    counts = sales.aggregate(by="a", n="count(*)")
    counts.sink("all")
    few = counts.filter("n > 100")
    few.top(1, by="n desc").sink("one")
    few.top(1, by="n asc").sink("two")
    plan = physical_plan(shop)
    assert len(operators(plan, MergeAggregate)) == 1
    assert [line for line in shape(plan) if "Where" in line] == [
        "s4 [Where, PartialTop] x4 <- s2",
        "s6 [Where, PartialTop] x4 <- s2",
    ]


@pytest.mark.parametrize(("readers", "scans"), [(MOST_COPIES, MOST_COPIES), (MOST_COPIES + 1, 1)])
def test_what_has_too_many_readers_stays_one_stage(
    shop: tg.Pipeline, sales: tg.Stream, readers: int, scans: int
) -> None:
    shared = sales.filter("a > 1")
    for number in range(readers):
        shared.filter(f"b > {number}").sink(f"sink{number}")
    assert len(operators(physical_plan(shop), Scan)) == scans


def test_what_is_shared_above_a_stage_with_too_many_readers_is_still_repeated(
    shop: tg.Pipeline, sales: tg.Stream
) -> None:
    crowded = sales.filter("a > 1")
    pair = crowded.filter("b > 1")
    pair.top(1, by="a asc").sink("one")
    pair.top(1, by="b asc").sink("two")
    for number in range(MOST_COPIES):
        crowded.filter(f"c > {number}").sink(f"sink{number}")
    lines = shape(physical_plan(shop))
    assert lines[0] == "s1 [Scan, Where] x4"
    assert len([line for line in lines if "[Where, PartialTop] x4 <- s1" in line]) == 2


def test_streams_that_part_and_meet_again_and_again_do_not_multiply(
    shop: tg.Pipeline, sales: tg.Stream
) -> None:
    stream = sales
    for number in range(40):
        left, right = stream.filter(f"a > {number}"), stream.filter(f"b > {number}")
        stream = left.union(right)
    stream.sink("all")
    plan = physical_plan(shop)
    assert len(operators(plan, Scan)) == 2
    assert len(list(plan.stages)) == 2 + 40 + 2 * 39 + 1


def test_a_plan_grows_no_more_than_by_the_copies_of_each_stage() -> None:
    deep = tg.Pipeline("deep")
    stream = deep.source("rows", "k int")
    for number in range(2_000):
        stream = stream.filter(f"k > {number}")
        stream.sink(f"sink{number}")
    plan = physical_plan(deep)
    assert len(operators(plan, Scan)) <= MOST_COPIES
    assert sum(len(stage.operators) for stage in plan.stages) <= MOST_COPIES * 4_001
