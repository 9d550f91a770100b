"""How long a checkpoint's barrier waited at a fan-in for the rest of its copies."""

from __future__ import annotations

import pytest

from tidegate.dataflow import BarrierKind, Edge
from tidegate.runtime.task import input_gate
from tidegate.runtime.task.input_gate import InputGate
from tidegate.runtime.task.processor import StepInput, StepOutput
from tidegate.store import WithdrawnCheckpoints

RUN = "march#1"
LEFT, RIGHT = Edge(0, "left"), Edge(1, "right")


class Clock:
    """A clock that the test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(input_gate, "monotonic", clock)
    return clock


def arrive(node: InputGate, edge: Edge, number: int) -> StepOutput:
    barrier = BarrierKind.CHECKPOINT.with_id(number, RUN)
    return node.process(StepInput(edge, (barrier,)))


def test_the_wait_is_from_the_first_copy_to_the_last_and_names_its_upstream(clock: Clock) -> None:
    node = InputGate("meet", (LEFT, RIGHT))
    arrive(node, LEFT, 1)
    clock.now = 3.0
    snapshot = arrive(node, RIGHT, 1).snapshots[RUN]
    assert (snapshot.waited, snapshot.last) == (3.0, "right")


def test_a_late_copy_of_a_withdrawn_barrier_is_not_the_first_of_the_next(clock: Clock) -> None:
    node = InputGate("meet", (LEFT, RIGHT))
    arrive(node, LEFT, 1)
    node.withdraw(RUN, WithdrawnCheckpoints(also=frozenset({1})))
    arrive(node, RIGHT, 1)
    clock.now = 60.0
    arrive(node, LEFT, 2)
    clock.now = 62.0
    assert arrive(node, RIGHT, 2).snapshots[RUN].waited == 2.0
