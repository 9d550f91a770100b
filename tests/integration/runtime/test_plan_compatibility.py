"""A run goes on under a changed declaration if what it keeps fits: everything but the rows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tidegate as tg
from tests.integration.runtime.names import Bench
from tests.integration.runtime.replanned import replan
from tests.integration.runtime.shop import ask
from tidegate.errors import OtherPlan, StillServed
from tidegate.plan import PhysicalPlan, physical_plan, plan_hash
from tidegate.plan.compatibility.fit import OTHER_GRAPH
from tidegate.runtime.checkpoints.plan_compatibility import (
    NOT_RECORDED,
    UNALIGNED,
    record_plan,
    refuse_misfit,
    refuse_while_served,
)
from tidegate.runtime.task import task_channels
from tidegate.runtime.task_graph import TaskGraph, build_task_graph
from tidegate.store import Database, Notifications, plan_of


def plan(before: int = 0, behind: int = 0, shards: int = 2) -> PhysicalPlan:
    """Aggregates of two sources, joined, and one of the sources as it is."""
    pipeline = tg.Pipeline("shop", shards=shards)
    sales = pipeline.source("sales", "id bigint, n int")
    items = pipeline.source("items", "id bigint, m int")
    sold = sales.filter(f"n > {before}").aggregate(by="id", sold="sum(n)")
    kinds = items.aggregate(by="id", kinds="sum(m)")
    sold.join(kinds, on="id").filter(f"sold > {behind}").sink("best")
    items.sink("items")
    return physical_plan(pipeline)


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Narrow stages wait for no more than there is."""
    monkeypatch.setattr(task_channels, "ready_at", lambda *_: 0.0)


@pytest.fixture
def bench(database: Database) -> Iterator[Bench]:
    """A run with chunks before its first cut and behind it."""
    with Notifications(database) as notifications:
        bench = Bench(database, notifications, plan())
        database.transact(lambda c: record_plan(c, bench.task_graph))
        for source in ("sales", "items"):
            bench.deliver(source)
        assert checkpoint(bench) == 1
        bench.deliver("sales")
        yield bench


def checkpoint(bench: Bench) -> int:
    number = bench.trigger()
    assert number is not None
    bench.settle()
    assert number in bench.committed
    assert bench.shown(number) == bench.expected(number)
    return number


def refusal(bench: Bench, task_graph: TaskGraph, number: int = 1) -> OtherPlan:
    with pytest.raises(OtherPlan) as refused:
        bench.database.transact(lambda c: refuse_misfit(c, task_graph, bench.run, number))
    return refused.value


def restore(bench: Bench, after: PhysicalPlan, number: int) -> None:
    task_graph = build_task_graph(after)
    bench.database.transact(lambda c: refuse_misfit(c, task_graph, bench.run, number))
    replan(bench, after, number)


def test_a_run_goes_on_under_a_plan_that_fits_with_all_that_it_had(bench: Bench) -> None:
    restore(bench, plan(behind=1), 1)
    assert bench.database.transact(lambda c: plan_of(c, bench.run)) == plan_hash(plan(behind=1))
    bench.deliver("items")
    assert bench.shown(checkpoint(bench)) == bench.expected()
    bench.deliver("sales")
    assert bench.finish() == bench.expected()


def test_a_run_goes_on_at_a_cut_of_the_plan_before_the_last(bench: Bench) -> None:
    restore(bench, plan(behind=1), 1)
    bench.settle()
    restore(bench, plan(behind=2), 1)
    bench.settle()
    restore(bench, plan(), 1)
    assert bench.finish() == bench.expected()


def test_a_source_that_has_ended_does_not_keep_a_run_from_its_plan(bench: Bench) -> None:
    bench.end("sales")
    restore(bench, plan(behind=1), 1)
    assert bench.finish() == bench.expected()


def test_a_plan_that_does_not_fit_is_refused_with_the_difference(bench: Bench) -> None:
    refused = refusal(bench, build_task_graph(plan(before=1)))
    assert refused.runs == "march"
    assert refused.plan == plan_hash(plan(before=1))
    assert refused.difference == ("filter n > 0 → filter n > 1",)
    assert len(refused.obstacles) == 2
    assert refused.difference[0] in str(refused)
    assert refusal(bench, build_task_graph(plan(shards=3))).obstacles == (OTHER_GRAPH,)


def test_answers_that_were_given_for_good_keep_a_run_from_another_plan(bench: Bench) -> None:
    bench.settle()
    bench.end("items")
    bench.settle()
    number = checkpoint(bench)
    refused = refusal(bench, build_task_graph(plan(behind=1)), number)
    (obstacle,) = refused.obstacles
    assert obstacle.startswith("s4/0, s4/1")
    restore(bench, plan(behind=1), 1)
    assert bench.finish() == bench.expected()


def test_a_cut_that_waited_for_no_barriers_keeps_a_run_from_another_plan(bench: Bench) -> None:
    unaligned = "UPDATE tidegate.checkpoint SET manifest = manifest || '{\"is_aligned\": false}'"
    ask(bench.database, unaligned)
    assert refusal(bench, build_task_graph(plan(behind=1))).obstacles == (UNALIGNED,)


def test_a_plan_that_was_not_recorded_is_taken_for_one_that_does_not_fit(bench: Bench) -> None:
    ask(bench.database, "DELETE FROM tidegate.plan")
    refused = refusal(bench, build_task_graph(plan(behind=1)))
    assert (refused.difference, refused.obstacles) == ((), (NOT_RECORDED,))


def test_a_run_does_not_change_its_plan_while_somebody_serves_it(bench: Bench) -> None:
    def refuse(after: PhysicalPlan) -> None:
        task_graph = build_task_graph(after)
        bench.database.transact(lambda c: refuse_while_served(c, task_graph, bench.run))

    refuse(plan())
    with pytest.raises(StillServed) as refused:
        refuse(plan(behind=1))
    assert (refused.value.run, refused.value.owners) == ("march", "the bench")
    ask(bench.database, "UPDATE tidegate.lease SET expires_at = clock_timestamp()")
    refuse(plan(behind=1))
