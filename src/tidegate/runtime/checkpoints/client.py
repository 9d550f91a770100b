"""Checkpoints as clients use them: begin one, wait for it, read the results of all sinks.

    number = server.checkpoints.begin("march")
    checkpoint = server.checkpoints.wait("march", number, 60.0)
    checkpoint.results["q3"]

The results of a checkpoint show all sinks at the same point: they follow from the chunks before
the barrier of each source, and from none after it.

The functions `begin`, `take` and `wait_committed` need neither the plan nor Spark: a checkpoint is
begun in the database; the processes that serve the pipeline inject its barriers and commit it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from tidegate.checkpoint import FINAL_STATES, CheckpointState
from tidegate.dataflow import Batch, CheckpointId
from tidegate.errors import (
    CheckpointAborted,
    CheckpointPending,
    CheckpointUnderWay,
    NothingToCheckpoint,
    RunError,
    UnknownCheckpoint,
    listed,
)
from tidegate.plan import PhysicalResultCollect
from tidegate.store import run_topic
from tidegate.store.checkpoints import checkpoints as checkpoint_store

if TYPE_CHECKING:
    from tidegate.plan import PhysicalPlan
    from tidegate.store import Connection, Database, Notifications, RunInfo
    from tidegate.store.checkpoints.checkpoints import Checkpoint


@dataclass(frozen=True)
class CheckpointResults:
    """The results of a run at one checkpoint."""

    number: int
    manifest: Mapping[str, Any]
    results: Mapping[str, list[Batch]]
    """By sink."""


@dataclass(frozen=True)
class Collector:
    """The node of a plan that collects the results of all sinks."""

    id: str
    sinks: tuple[str, ...]


class CheckpointClient:
    """The checkpoints of a pipeline's runs. `known` finds a run by its name."""

    def __init__(
        self,
        database: Database,
        plan: PhysicalPlan,
        notifications: Notifications,
        known: Callable[[str], RunInfo],
        inject: Callable[[], None],
    ) -> None:
        self._database = database
        self._plan = plan
        self._notifications = notifications
        self._known = known
        self._inject = inject

    def begin(self, run: str, *, unaligned: bool = False) -> int:
        """Begin a checkpoint; its number. Raises `NothingToCheckpoint` or `CheckpointUnderWay`.

        An unaligned checkpoint does not wait for barriers. Sinks do not show it.
        """
        number = begin(self._database, self._known(run), unaligned=unaligned)
        self._inject()
        return number

    def all(self, run: str) -> list[Checkpoint]:
        """All retained checkpoints of a run, the oldest first."""
        found = self._known(run)
        return self._database.transact(lambda c: checkpoint_store.checkpoints_of(c, found))

    def read(self, run: str, number: int | None = None) -> CheckpointResults:
        """The results at a published checkpoint, by default the latest, or `UnknownCheckpoint`."""
        found = self._known(run)
        collector = collector_of(self._plan)
        return self._database.transact(lambda c: read_checkpoint(c, found, collector, number))

    def taken(self, run: str, number: int, timeout: float) -> Checkpoint:
        """Wait until a checkpoint is committed; see `wait_committed`."""
        return wait_committed(
            self._database, self._notifications, self._known(run), number, timeout
        )

    def wait(self, run: str, number: int, timeout: float) -> CheckpointResults:
        """Wait until a checkpoint is committed, and read it."""
        self.taken(run, number, timeout)
        return self.read(run, number)


def read_checkpoint(
    connection: Connection, run: RunInfo, collector: Collector, number: int | None
) -> CheckpointResults:
    """The results of all sinks at a published checkpoint, by default the latest.

    Raises `UnknownCheckpoint`.
    """
    checkpoint = checkpoint_store.committed_checkpoint(connection, run, number, published=True)
    if checkpoint is None:
        published = [
            str(known.number)
            for known in checkpoint_store.checkpoints_of(connection, run)
            if known.state is CheckpointState.COMMITTED and known.is_published
        ]
        raise unknown_checkpoint(run, number, published, "published checkpoint")
    # A sink without rows has a result, too.
    found: dict[str, list[Batch]] = {sink: [] for sink in collector.sinks}
    for result in checkpoint_store.sink_results(connection, run, collector.id, checkpoint.number):
        found[result.sink].append(result.batch)
    return CheckpointResults(checkpoint.number, checkpoint.manifest, found)


def collector_of(plan: PhysicalPlan) -> Collector:
    """The collecting node of a plan."""
    assert isinstance(plan.root, PhysicalResultCollect)
    return Collector(plan.root.id, plan.root.sinks)


def begin(database: Database, run: RunInfo, *, unaligned: bool = False) -> int:
    """Begin a checkpoint; its number. An unaligned one does not wait for barriers.

    Raises `NothingToCheckpoint`, `CheckpointUnderWay`, or `RunEnded` when the run is closed.
    """
    number = database.transact(
        partial(
            checkpoint_store.trigger,
            run=run,
            id=CheckpointId.new(),
            unpublished=unaligned,
            alignment_timeout=0.0 if unaligned else None,
        )
    )
    if number is None:
        raise _why_not_begun(database, run)
    return number


def take(
    database: Database,
    notifications: Notifications,
    run: RunInfo,
    timeout: float,
    *,
    unaligned: bool = False,
) -> Checkpoint:
    """Begin a checkpoint as soon as no other is in progress, and wait until it is committed."""
    deadline = monotonic() + timeout
    while True:
        try:
            number = begin(database, run, unaligned=unaligned)
        except CheckpointUnderWay as other:
            with suppress(CheckpointAborted):
                left = deadline - monotonic()
                wait_committed(database, notifications, run, other.number, left)
        else:
            left = deadline - monotonic()
            return wait_committed(database, notifications, run, number, left)


def wait_committed(
    database: Database, notifications: Notifications, run: RunInfo, number: int, timeout: float
) -> Checkpoint:
    """Wait until a checkpoint is committed.

    Raises `CheckpointAborted` with the reason, `CheckpointPending` after the timeout.
    """

    def look() -> Checkpoint | None:
        checkpoint = _not_aborted(database, run, number)
        return checkpoint if checkpoint.state is CheckpointState.COMMITTED else None

    committed = notifications.wait_until(run_topic(run.pipeline), look, timeout)
    if committed is None:
        raise CheckpointPending(run.name, number, timeout)
    return committed


def unknown_checkpoint(
    run: RunInfo, number: int | None, known: Sequence[str], kind: str = "checkpoint"
) -> UnknownCheckpoint:
    """The error for a checkpoint that is not among the known ones."""
    wanted = f"any {kind}" if number is None else f"{kind} {number}"
    return UnknownCheckpoint(run.name, wanted, listed(known or ["none"]))


def _not_aborted(database: Database, run: RunInfo, number: int) -> Checkpoint:
    known = database.transact(lambda c: checkpoint_store.checkpoints_of(c, run))
    checkpoint = next((each for each in known if each.number == number), None)
    if checkpoint is None:
        raise unknown_checkpoint(run, number, [str(each.number) for each in known])
    if checkpoint.state is CheckpointState.ABORTED:
        reason, offender = checkpoint.reason or "", checkpoint.offender or "unknown"
        raise CheckpointAborted(run.name, number, reason, offender)
    return checkpoint


def _why_not_begun(database: Database, run: RunInfo) -> RunError:
    known = database.transact(lambda c: checkpoint_store.checkpoints_of(c, run))
    under_way = [checkpoint.number for checkpoint in known if checkpoint.state not in FINAL_STATES]
    return (
        CheckpointUnderWay(run.name, under_way[-1]) if under_way else NothingToCheckpoint(run.name)
    )
