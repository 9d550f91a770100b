"""Whatever changes in whatever pipeline: a run that goes on ends as if it had always been so.

Names carry marks of all steps that they went through. So results of a run that was restored under
another plan can be compared with those of a run that never had another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from random import Random

import pytest

import tidegate as tg
from tests.integration.runtime.names import Bench, Hub, Shown
from tests.integration.runtime.replanned import MarkingProcessorFactory, rebuild, replan
from tidegate.errors import OtherPlan
from tidegate.pipeline import Stream
from tidegate.plan import PhysicalPlan, difference, encoded, physical_plan
from tidegate.runtime.checkpoints.plan_compatibility import record_plan, refuse_misfit
from tidegate.runtime.task import stage_state, task_channels
from tidegate.runtime.task_graph import build_task_graph

COLUMNS = "k bigint, v bigint"
CASES = 12
Operator = Callable[[Stream, Stream, int], Stream]
_names = count(1)

OPERATORS: Sequence[Operator] = (
    lambda left, _, n: left.filter(f"v > {n}"),
    lambda left, _, n: left.select("k", v=f"v + {n}"),
    lambda left, _, n: left.aggregate(by="k", v=f"sum(v + {n})"),
    lambda left, _, n: left.top(n, by="v desc"),
    lambda left, right, _: left.union(right),
    lambda left, right, n: left.join(right.select("k", w=f"v + {n}"), on="k"),
)
FILTER, SELECT, AGGREGATE = OPERATORS[:3]


@dataclass(frozen=True)
class Declared:
    """An operator, the streams that it reads, and a number that may change."""

    operator: Operator
    left: int
    right: int
    number: int


@dataclass(frozen=True)
class Declaration:
    """Two sources and what is done with them; whatever nobody reads is a sink."""

    shards: int
    operators: tuple[Declared, ...]

    @property
    def plan(self) -> PhysicalPlan:
        pipeline = tg.Pipeline(f"replanned-{next(_names)}", shards=self.shards)
        streams = [pipeline.source(name, COLUMNS) for name in "ab"]
        for it in self.operators:
            streams.append(it.operator(streams[it.left], streams[it.right], it.number))
        read = {it.left for it in self.operators}
        for number, stream in enumerate(streams):
            if number not in read:
                stream.sink(f"sink{number}")
        return physical_plan(pipeline)

    def changed(self, place: int) -> Declaration:
        it = self.operators[place]
        changed = replace(it, number=it.number + 1)
        return replace(
            self, operators=(*self.operators[:place], changed, *self.operators[place + 1 :])
        )


def random_declaration(chance: Random) -> Declaration:
    """An operator reads something that none has read from the left, and on its right anything."""
    operators: list[Declared] = []
    unread = [0, 1]
    for made in range(2, 2 + chance.randint(2, 6)):
        left = chance.choice(unread)
        operators.append(Declared(chance.choice(OPERATORS), left, chance.randrange(made), 1))
        unread = [*(it for it in unread if it != left), made]
    return Declaration(chance.choice((1, 2)), tuple(operators))


@pytest.fixture(scope="module", autouse=True)
def hasty() -> Iterator[None]:
    """Narrow stages wait for no more than there is, and states are condensed again and again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_channels, "ready_at", lambda *_: 0.0)
        patch.setattr(stage_state, "MANY", 2)
        yield


def bench(hub: Hub, plan: PhysicalPlan) -> Bench:
    made = Bench(*hub, plan)
    hub[0].transact(lambda c: record_plan(c, made.task_graph))
    rebuild(made, MarkingProcessorFactory)
    return made


def deliver(it: Bench, times: int) -> None:
    for _ in range(times):
        for source in it.task_graph.sources:
            it.deliver(source)
        it.settle()


def checkpoint(it: Bench) -> int:
    number = it.trigger()
    assert number is not None
    it.settle()
    assert number in it.committed
    return number


def undisturbed(hub: Hub, plan: PhysicalPlan, times: int) -> Shown:
    it = bench(hub, plan)
    deliver(it, times)
    return it.finish()


def restored(hub: Hub, before: PhysicalPlan, after: PhysicalPlan, *, is_forced: bool) -> Shown:
    """Two chunks before the first cut, one before the second, one behind it, one afterwards."""
    it = bench(hub, before)
    deliver(it, 2)
    checkpoint(it)
    deliver(it, 1)
    number = checkpoint(it)
    deliver(it, 1)
    if not is_forced:
        task_graph = build_task_graph(after)
        hub[0].transact(lambda c: refuse_misfit(c, task_graph, it.run, number))
    replan(it, replace(after, pipeline=before.pipeline), number, MarkingProcessorFactory)
    deliver(it, 1)
    return it.finish()


Change = tuple[PhysicalPlan, PhysicalPlan]


def random_change(seed: int) -> Change:
    chance = Random(seed)
    declared = random_declaration(chance)
    return declared.plan, declared.changed(chance.randrange(len(declared.operators))).plan


def fits(change: Change) -> bool:
    before, after = (encoded(plan) for plan in change)
    return before != after and difference(before, after).fits


@cache
def random_changes() -> tuple[list[Change], list[Change]]:
    """Those that fit, and those that do not."""
    every = [random_change(seed) for seed in range(120)]
    return [it for it in every if fits(it)], [it for it in every if not fits(it)]


def test_some_changes_fit_and_most_do_not() -> None:
    fitting, others = random_changes()
    assert CASES <= len(fitting) < len(others)


@pytest.mark.parametrize("number", range(CASES))
def test_a_run_that_goes_on_under_a_plan_that_fits_ends_as_if_it_had_always_been_so(
    hub: Hub, number: int
) -> None:
    before, after = random_changes()[0][number]
    assert restored(hub, before, after, is_forced=False) == undisturbed(hub, after, 5)


def test_a_run_that_is_forced_under_a_plan_that_does_not_fit_shows_rows_of_both(hub: Hub) -> None:
    """Else the test before this one would prove nothing."""
    declared = Declaration(2, (Declared(FILTER, 0, 0, 1), Declared(AGGREGATE, 2, 0, 1)))
    after = declared.changed(0).plan
    with pytest.raises(OtherPlan):
        restored(hub, declared.plan, after, is_forced=False)
    assert restored(hub, declared.plan, after, is_forced=True) != undisturbed(hub, after, 5)
