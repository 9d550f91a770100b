"""A physical plan becomes processors and links; its own barriers forward END."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

import tidegate as tg
from tidegate.dataflow import Barrier, Event
from tidegate.plan import PhysicalBarrier, PhysicalPlan, PhysicalResultCollect, PhysicalStage
from tidegate.plan import physical_plan as plan_of
from tidegate.plan.physical import STATEFUL
from tidegate.runtime import Operator, Processor, edges_into
from tidegate.runtime.task_graph import assemble, tasks
from tidegate_examples.coffee import pipeline as coffee


class Counting(Operator):
    """Stands for a stage: a stateful one keeps events until the run ends, as Spark's do."""

    def __init__(self, name: str, *, stateful: bool) -> None:
        super().__init__(name)
        self.stateful = stateful
        self.ports: list[int] = []
        self._kept: list[Event[object]] = []

    def on_event(self, event: Event[object]) -> Iterable[Event[object]]:
        self.ports.append(event.port)
        if not self.stateful:
            return (event,)
        self._kept.append(event)
        return ()

    def flush(self, barrier: Barrier) -> Iterable[Event[object]]:
        kept, self._kept = self._kept, []
        return kept if barrier.is_end else ()


class Bench:
    """A workshop that remembers what it made."""

    def __init__(self) -> None:
        self.made: dict[str, Counting] = {}

    def stage(self, name: str, stage: PhysicalStage, shard: int) -> Processor:
        stateful = any(isinstance(step, STATEFUL) for step in stage.steps)
        return self._make(name, stateful=stateful)

    def collector(self, name: str, collect: PhysicalResultCollect) -> Processor:
        return self._make(name, stateful=False)

    def _make(self, name: str, *, stateful: bool) -> Processor:
        self.made[name] = Counting(name, stateful=stateful)
        return self.made[name]


def barriers(plan: PhysicalPlan) -> list[PhysicalBarrier]:
    return [node for node in plan.nodes if isinstance(node, PhysicalBarrier)]


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_every_barrier_expects_exactly_the_lanes_that_arrive(shards: int) -> None:
    plan = plan_of(coffee, shards=shards)
    assembly = assemble(plan)
    assert barriers(plan)
    for barrier in barriers(plan):
        for task in tasks(barrier):
            assert len(edges_into(assembly.links, task)) == barrier.upstream_count


@pytest.mark.parametrize("shards", [1, 3])
def test_whatever_is_no_barrier_has_one_arriving_lane_at_most(shards: int) -> None:
    plan = plan_of(coffee, shards=shards)
    assembly = assemble(plan)
    for node in plan.nodes:
        if not isinstance(node, PhysicalBarrier):
            assert all(len(edges_into(assembly.links, task)) <= 1 for task in tasks(node))


def test_every_source_is_read_by_all_shards_of_its_stages() -> None:
    assembly = assemble(plan_of(coffee, shards=2))
    assert set(assembly.sources) == {
        "transactions",
        "transaction_items",
        "menu_items",
        "stores",
        "users",
    }
    for readers in assembly.sources.values():
        assert readers
        assert all(len(tasks) == 2 for tasks in readers)


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_the_plans_own_barriers_forward_one_end_for_many_runs_at_once(shards: int) -> None:
    bench = Bench()
    assembly = assemble(plan_of(coffee, shards=shards))
    with assembly.start(bench, capacity=4) as live:
        receipts = []
        for run in ("small", "empty", "large"):
            live.begin(run)
            for source in assembly.sources:
                for number in range({"small": 1, "empty": 0, "large": 20}[run]):
                    live.send(source, number, run)
            receipts.append(live.end(run))
        for receipt in receipts:
            receipt.wait(60)
    # Five sinks, five sources: whatever the way, some of each client's batches came through.
    assert len(bench.made["c"].ports) > 0
    assert live.open_runs == ()


def test_a_join_knows_its_left_side_from_its_right_over_several_lanes() -> None:
    pipeline = tg.Pipeline("sides", shards=3)
    left = pipeline.source("left", "id bigint, a string")
    right = pipeline.source("right", "id bigint, b string")
    left.join(right, on="id").sink("joined")
    bench = Bench()
    assembly = assemble(plan_of(pipeline))
    with assembly.start(bench) as live:
        live.begin("march")
        for shard in range(3):
            live.send("left", "l", "march", shard)
            live.send("right", "r", "march", shard)
        live.end("march").wait(60)
    joins = [made for made in bench.made.values() if made.stateful]
    assert [sorted(join.ports) for join in joins] == [[0, 0, 0, 1, 1, 1]]
