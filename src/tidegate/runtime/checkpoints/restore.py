"""Restores a run to one of its checkpoints; its plan and files are checked first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tidegate.checkpoint import CheckpointState
from tidegate.errors import CheckpointDamaged, UnknownCheckpoint, listed
from tidegate.plan import plan_hash
from tidegate.runtime.checkpoints.client import unknown_checkpoint
from tidegate.runtime.checkpoints.plan_compatibility import (
    record_plan,
    refuse_misfit,
    refuse_while_served,
)
from tidegate.runtime.file_storage import FileStorage
from tidegate.runtime.task_graph import HEAD, channel_names
from tidegate.store import ChannelName, RunState
from tidegate.store.checkpoints import checkpoints as checkpoint_store
from tidegate.store.checkpoints import restore as restore_store

if TYPE_CHECKING:
    from tidegate.runtime.deployment import Deployment
    from tidegate.runtime.task_graph import TaskGraph
    from tidegate.store import Connection, Database, FileChecksum, RunInfo
    from tidegate.store.checkpoints.restore import ChannelGraph


def restore(
    deployment: Deployment,
    task_graph: TaskGraph,
    run: RunInfo,
    number: int | None = None,
    *,
    is_served: bool = False,
) -> RunInfo:
    """Restart a run from a checkpoint, by default its latest, under the plan of `task_graph`.

    `is_served` means that the caller serves that plan. Raises `UnknownCheckpoint`; `OtherPlan` if
    the state of the run does not fit; `StillServed` if another process may go on under the old
    plan; `CheckpointDamaged`, which names the newest checkpoint that is intact.
    """
    database, storage = deployment.database, FileStorage(deployment.root)
    if run.state is RunState.ENDED:
        raise UnknownCheckpoint(run.name, "a checkpoint to restore", "none, since it has ended")
    known = _checkpoints(database, run)
    wanted = number if number is not None else max(known, default=0)
    if wanted not in known:
        raise unknown_checkpoint(run, number, [str(each) for each in known])
    database.transact(lambda c: _check_plan(c, task_graph, run, wanted, is_served=is_served))
    damaged = _damaged(database, storage, run, wanted)
    if damaged:
        others = [each for each in known if each != wanted]
        intact = next(_intact(database, storage, run, others), None)
        newest = f"checkpoint {intact}" if intact else "none"
        raise CheckpointDamaged(run.name, wanted, listed(damaged), newest)
    return database.transact(lambda c: _restart(c, task_graph, run, wanted))


def graph_of(task_graph: TaskGraph) -> ChannelGraph:
    """The channels of a run under a plan."""
    sources = {
        source: [[ChannelName(HEAD, task) for task in tasks] for tasks in readers]
        for source, readers in task_graph.sources.items()
    }
    heads = [
        channel.to_task for each in sources.values() for channels in each for channel in channels
    ]
    return restore_store.ChannelGraph(
        plan_hash(task_graph.plan), channel_names(task_graph.edges, heads), sources
    )


def _checkpoints(database: Database, run: RunInfo) -> list[int]:
    every = database.transact(lambda c: checkpoint_store.checkpoints_of(c, run))
    return [each.number for each in every if each.state is CheckpointState.COMMITTED]


def _check_plan(
    connection: Connection, task_graph: TaskGraph, run: RunInfo, number: int, *, is_served: bool
) -> None:
    refuse_misfit(connection, task_graph, run, number)
    if not is_served:
        refuse_while_served(connection, task_graph, run)


def _restart(connection: Connection, task_graph: TaskGraph, run: RunInfo, number: int) -> RunInfo:
    record_plan(connection, task_graph)
    return restore_store.restore(connection, run, number, graph_of(task_graph))


def _damaged(database: Database, storage: FileStorage, run: RunInfo, number: int) -> list[str]:
    """The files of a checkpoint, and of later chunks, that are missing or have changed."""
    checksums = database.transact(lambda c: restore_store.file_checksums(c, run, number))
    behind = database.transact(lambda c: restore_store.files_after(c, run, number))
    expected = behind | {checksum.path: checksum for checksum in checksums}
    return [
        file for file, checksum in expected.items() if not _is_intact(storage.find(file), checksum)
    ]


def _is_intact(found: FileChecksum | None, expected: FileChecksum | None) -> bool:
    """A file without a checksum only has to exist."""
    return found is not None and expected in {None, found}


def _intact(
    database: Database, storage: FileStorage, run: RunInfo, numbers: Sequence[int]
) -> Iterator[int]:
    """Intact checkpoints, the newest first."""
    return (
        number
        for number in sorted(numbers, reverse=True)
        if not _damaged(database, storage, run, number)
    )
