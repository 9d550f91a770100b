"""Suspension of a task: ends the attempt at a wait, and stores what the task waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.store.flows import pipeline_links
from tidegate.store.flows import tasks as flow_tasks

if TYPE_CHECKING:
    from tidegate.flows.model.gates import Condition
    from tidegate.store import Connection, RunInfo
    from tidegate.store.flows.tasks import Claim


class Suspended(BaseException):
    """Leaves a function whose wait is not over; a BaseException, so that user code lets it pass."""

    def __init__(
        self,
        conditions: tuple[Condition, ...],
        keys: tuple[str, ...],
        seen: int,
        number: int,
        poll: float,
        timeout: float | None,
    ) -> None:
        super().__init__(number)
        self.conditions = conditions
        """What it waits for, if a gate declares that."""
        self.keys = keys
        self.seen = seen
        self.number = number
        self.poll = poll
        self.timeout = timeout

    def suspend(self, connection: Connection, claim: Claim) -> None:
        """Suspend the task until one of its keys changes."""
        how = (self.keys, self.seen, self.number, self.poll, self.timeout)
        flow_tasks.record_gate(connection, claim, self.conditions)
        flow_tasks.suspend(connection, claim, *how)


class AwaitsPipeline(Suspended):
    """Leaves a function whose pipeline run is open."""

    def __init__(self, run: RunInfo, number: int, timeout: float | None) -> None:
        super().__init__((), (), 0, number, 0.0, timeout)
        self.run = run

    def suspend(self, connection: Connection, claim: Claim) -> None:
        """Suspend the task until the run is closed."""
        pipeline_links.suspend_for(connection, claim, self.run, self.number, self.timeout)
