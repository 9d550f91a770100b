"""How long a checkpoint's barrier waited at a fan-in for the rest of its copies."""

from __future__ import annotations

import pytest

from tidegate.dataflow import BarrierKind, Carrier, Edge
from tidegate.runtime.task import processors
from tidegate.runtime.task.processors import BarrierProcessor
from tidegate.runtime.task.task_loop import Outcome, Step
from tidegate.store import Withdrawn

RUN = "march#1"
LEFT, RIGHT = Edge(0, "left"), Edge(1, "right")


class Clock:
    """Tells the time that a test wants it to be."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(processors, "monotonic", clock)
    return clock


def arrive(node: BarrierProcessor, edge: Edge, number: int) -> Outcome:
    barrier = BarrierKind.CHECKPOINT.with_id(number, RUN)
    return node.handle(Step(Carrier.DATA, edge, (barrier,)))


def test_it_is_the_time_from_the_first_copy_to_the_last_and_who_brought_that(clock: Clock) -> None:
    node = BarrierProcessor("meet", (LEFT, RIGHT))
    arrive(node, LEFT, 1)
    clock.now = 3.0
    said = arrive(node, RIGHT, 1).snapshots[RUN]
    assert (said.waited, said.last) == (3.0, "right")


def test_a_late_copy_of_one_that_was_withdrawn_is_not_the_first_of_the_next(clock: Clock) -> None:
    node = BarrierProcessor("meet", (LEFT, RIGHT))
    arrive(node, LEFT, 1)
    node.withdraw(RUN, Withdrawn(also=frozenset({1})))
    arrive(node, RIGHT, 1)
    clock.now = 60.0
    arrive(node, LEFT, 2)
    clock.now = 62.0
    assert arrive(node, RIGHT, 2).snapshots[RUN].waited == 2.0
