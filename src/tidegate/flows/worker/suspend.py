"""Waits that are not over: what ends an attempt at a task, and how the task is put aside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.store.flows import pipeline_links
from tidegate.store.flows import tasks as flow_tasks

if TYPE_CHECKING:
    from tidegate.flows.model.gates import Condition
    from tidegate.store import Connection, Run
    from tidegate.store.flows.tasks import Claim


class Suspended(BaseException):
    """Leaves a function whose wait is not over; no handler of the user's is to catch it."""

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
        """What it waits for, where a gate says so."""
        self.keys = keys
        self.seen = seen
        self.number = number
        self.poll = poll
        self.timeout = timeout

    def suspend(self, connection: Connection, claim: Claim) -> None:
        """Put the task aside until it is worth while to look again."""
        how = (self.keys, self.seen, self.number, self.poll, self.timeout)
        flow_tasks.tell_gate(connection, claim, self.conditions)
        flow_tasks.suspend(connection, claim, *how)


class AwaitsPipeline(Suspended):
    """Leaves a function whose run of a pipeline is open."""

    def __init__(self, run: Run, number: int, timeout: float | None) -> None:
        super().__init__((), (), 0, number, 0.0, timeout)
        self.run = run

    def suspend(self, connection: Connection, claim: Claim) -> None:
        """Put the task aside until the run is closed."""
        pipeline_links.suspend_for(connection, claim, self.run, self.number, self.timeout)
