"""A run of a flow as it is seen at one moment, and how fast it moves between two."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

from tidegate.store.flows.events import (
    count_flow_workers,
    flow_ready,
    flow_waits,
    tasks_by_worker,
)
from tidegate.store.flows.runs import awaited_signals, flow_progress, flow_run, flow_state

if TYPE_CHECKING:
    from tidegate.flows.model.keys import StateValue
    from tidegate.store import Connection
    from tidegate.store.flows.events import FlowWait, WorkerTasks
    from tidegate.store.flows.runs import FlowRunInfo, StepProgress

SPAN = 5.0
"""Seconds over which a rate is taken."""
SOON = 5.0
"""Seconds within which a worker takes what is ready, if one is there and has nothing else to do."""


@dataclass(frozen=True, slots=True)
class RunInspection:
    """What is known of a run."""

    run: FlowRunInfo
    steps: list[StepProgress]
    state: dict[str, StateValue]
    waits: list[FlowWait]
    holdings: list[WorkerTasks]
    at: float = field(default_factory=monotonic)
    signals: list[str] = field(default_factory=list)
    """Steps that wait for nothing but their signal."""
    ready: dict[str, float] = field(default_factory=dict)
    """Seconds for which steps have had something to do that nobody does."""
    workers: int = 0
    """How many are alive, whichever flows they work for."""

    @property
    def not_taken(self) -> dict[str, float]:
        """The steps of `ready` that should have been taken by this time.

        A step that waits for the state is ready for a moment whenever it looks again.
        """
        return {
            step: seconds
            for step, seconds in self.ready.items()
            if seconds >= SOON and (self.workers == 0 or not self.wait_of(step))
        }

    def done(self, step: str) -> int:
        """Items of a step that nothing more happens to."""
        return sum(it.spawned - it.in_flight for it in self.steps if it.name == step)

    def wait_of(self, step: str) -> list[FlowWait]:
        """What the step itself waits for."""
        return [it for it in self.waits if it.step == step and it.position < 0]


def inspect(connection: Connection, run: int) -> RunInspection:
    """Read everything that is known of a run."""
    _, state = flow_state(connection, run)
    return RunInspection(
        flow_run(connection, run), flow_progress(connection, run), state,
        flow_waits(connection, run), tasks_by_worker(connection, run),
        signals=awaited_signals(connection, run), ready=flow_ready(connection, run),
        workers=count_flow_workers(connection),
    )  # fmt: skip


class RateMeter:
    """How fast numbers of a run have grown in the last seconds."""

    def __init__(self) -> None:
        self._sights: deque[RunInspection] = deque()

    def add(self, sight: RunInspection) -> None:
        """The latest sight; forgets those that are too old."""
        self._sights.append(sight)
        while len(self._sights) > 2 and sight.at - self._sights[1].at >= SPAN:  # noqa: PLR2004
            self._sights.popleft()

    def rate(self, number: Callable[[RunInspection], float | None]) -> float | None:
        """By how much a number grows in a second; None where that is not known yet."""
        if len(self._sights) == 0:
            return None
        first, last = self._sights[0], self._sights[-1]
        begin, end = number(first), number(last)
        if begin is None or end is None or last.at <= first.at:
            return None
        return max((end - begin) / (last.at - first.at), 0.0)
