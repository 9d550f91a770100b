"""What clients ask of the cuts of their runs: take one now, wait for it, read all sinks of one.

    number = server.cuts.begin("march")
    cut = server.cuts.wait("march", number, 60.0)
    cut.results["q3"]

Whoever reads a cut sees all sinks at the same point: what follows from the chunks before the
barrier at each source, and from none behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidegate.checkpoint import CheckpointState
from tidegate.dataflow import Batch
from tidegate.errors import UnknownCheckpoint, listed
from tidegate.plan import PhysicalResultCollect
from tidegate.runtime.checkpoints import trigger
from tidegate.store.checkpoints import checkpoints as checkpoint_store

if TYPE_CHECKING:
    from tidegate.plan import PhysicalPlan
    from tidegate.store import Connection, Database, Notifications, RunInfo
    from tidegate.store.checkpoints.checkpoints import Checkpoint


@dataclass(frozen=True)
class CheckpointResults:
    """One cut of a run."""

    number: int
    manifest: Mapping[str, Any]
    results: Mapping[str, list[Batch]]
    """For every sink what it shows there."""


@dataclass(frozen=True)
class Collector:
    """The node of a plan that collects the results of all sinks."""

    id: str
    sinks: tuple[str, ...]


class CheckpointClient:
    """The cuts of a pipeline's runs. `known` finds a run by its name."""

    def __init__(
        self,
        database: Database,
        plan: PhysicalPlan,
        notifications: Notifications,
        known: Callable[[str], RunInfo],
        injected: Callable[[], None],
    ) -> None:
        self._database = database
        self._plan = plan
        self._notifications = notifications
        self._known = known
        self._injected = injected

    def begin(self, run: str, *, unaligned: bool = False) -> int:
        """Begin a checkpoint now; its number. Raises `NothingToCheckpoint` or `CheckpointUnderWay`.

        An unaligned one waits for no barriers. It is there to be restored: sinks do not show it.
        """
        number = trigger.begin(self._database, self._known(run), unaligned=unaligned)
        self._injected()
        return number

    def all(self, run: str) -> list[Checkpoint]:
        """All checkpoints of a run that are remembered, the oldest first."""
        found = self._known(run)
        return self._database.transact(lambda c: checkpoint_store.checkpoints_of(c, found))

    def read(self, run: str, number: int | None = None) -> CheckpointResults:
        """What all sinks show at one cut, by default at the latest; or `UnknownCheckpoint`."""
        found = self._known(run)
        collector = collector_of(self._plan)
        return self._database.transact(lambda c: read_checkpoint(c, found, collector, number))

    def taken(self, run: str, number: int, timeout: float) -> Checkpoint:
        """Wait until a checkpoint is a cut; `CheckpointAborted` says why it never will be."""
        return trigger.wait(self._database, self._notifications, self._known(run), number, timeout)

    def wait(self, run: str, number: int, timeout: float) -> CheckpointResults:
        """Wait until a checkpoint is a cut, and read it; `UnknownCheckpoint` if sinks do not show
        it.
        """
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
        known = [it for it in checkpoint_store.checkpoints_of(connection, run)
                 if it.state is CheckpointState.COMMITTED and it.is_published]  # fmt: skip
        wanted = "a published checkpoint" if number is None else f"a published checkpoint {number}"
        numbers = listed([str(it.number) for it in known] or ["none"])
        raise UnknownCheckpoint(run.name, wanted, numbers)
    given = checkpoint_store.sink_results(connection, run, collector.id, checkpoint.number)
    # A sink without rows has a result, too.
    found: dict[str, list[Batch]] = {sink: [] for sink in collector.sinks}
    for result in given:
        found[result.sink].append(result.batch)
    return CheckpointResults(checkpoint.number, checkpoint.manifest, found)


def collector_of(plan: PhysicalPlan) -> Collector:
    """The collecting node of a plan."""
    assert isinstance(plan.root, PhysicalResultCollect)
    return Collector(plan.root.id, plan.root.sinks)
