"""Inspection of a flow run at one point in time, and rates between inspections."""

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

RATE_WINDOW = 5.0
"""Seconds over which a rate is measured."""
CLAIM_BOUND = 5.0
"""Seconds within which an idle worker claims a ready task."""


@dataclass(frozen=True, slots=True)
class RunInspection:
    """Everything that is known of a run."""

    run: FlowRunInfo
    steps: list[StepProgress]
    state: dict[str, StateValue]
    waits: list[FlowWait]
    in_flight: list[WorkerTasks]
    at: float = field(default_factory=monotonic)
    signals: list[str] = field(default_factory=list)
    """Steps that wait only for their signal."""
    ready: dict[str, float] = field(default_factory=dict)
    """By step, seconds for which a task has been ready and not claimed."""
    workers: int = 0
    """Workers with a valid lease, of any flow."""

    @property
    def unclaimed(self) -> dict[str, float]:
        """The steps of `ready` that a worker should have claimed by now.

        A step that waits for state is ready briefly whenever its gate is evaluated again.
        """
        return {
            step: seconds
            for step, seconds in self.ready.items()
            if seconds >= CLAIM_BOUND and (self.workers == 0 or not self.wait_of(step))
        }

    def done(self, step: str) -> int:
        """Items of a step that are terminal."""
        return sum(found.spawned - found.in_flight for found in self.steps if found.name == step)

    def wait_of(self, step: str) -> list[FlowWait]:
        """What the step's own function waits for."""
        return [wait for wait in self.waits if wait.step == step and wait.position < 0]


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
    """Measures how fast numbers of a run grow, over the last `RATE_WINDOW` seconds."""

    def __init__(self) -> None:
        self._inspections: deque[RunInspection] = deque()

    def add(self, inspection: RunInspection) -> None:
        """Add the latest inspection; drops those outside of the window."""
        found = self._inspections
        found.append(inspection)
        while len(found) > 2 and inspection.at - found[1].at >= RATE_WINDOW:  # noqa: PLR2004
            found.popleft()

    def rate(self, number: Callable[[RunInspection], float | None]) -> float | None:
        """Growth of a number per second; None if it is not known yet."""
        if len(self._inspections) == 0:
            return None
        first, last = self._inspections[0], self._inspections[-1]
        start, end = number(first), number(last)
        if start is None or end is None or last.at <= first.at:
            return None
        return max((end - start) / (last.at - first.at), 0.0)
