"""Restoring a run to one of its cuts: what it needs is checked before anything is changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tidegate.checkpoint import CheckpointState
from tidegate.errors import CheckpointDamaged, UnknownCheckpoint, listed
from tidegate.plan import plan_hash
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
    place: Deployment,
    task_graph: TaskGraph,
    run: RunInfo,
    number: int | None = None,
    *,
    is_served: bool = False,
) -> RunInfo:
    """Begin a run again at a cut, by default its latest, under the plan of `task_graph`.

    `is_served` says that the caller serves that plan. Raises `UnknownCheckpoint`; `OtherPlan` when
    what the run keeps does not fit, `StillServed` when somebody else may go on under the plan that
    it had; or `CheckpointDamaged`, which names the newest cut that is intact.
    """
    database, storage = place.database, FileStorage(place.root)
    if run.state is RunState.ENDED:
        raise UnknownCheckpoint(run.name, "a cut to go on from", "none, for it has ended")
    known = _checkpoints(database, run)
    wanted = number if number is not None else max(known, default=0)
    if wanted not in known:
        asked = "any cut" if number is None else f"cut {number}"
        raise UnknownCheckpoint(run.name, asked, listed([str(it) for it in known] or ["none"]))
    database.transact(lambda c: _check_plan(c, task_graph, run, wanted, is_served=is_served))
    damaged = _damaged(database, storage, run, wanted)
    if damaged:
        intact = next(_intact(database, storage, run, [it for it in known if it != wanted]), None)
        raise CheckpointDamaged(
            run.name, wanted, listed(damaged), f"cut {intact}" if intact else "none"
        )
    return database.transact(lambda c: _begin_again(c, task_graph, run, wanted))


def graph_of(task_graph: TaskGraph) -> ChannelGraph:
    """The channels of a plan, as its runs have them."""
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
    return [it.number for it in every if it.state is CheckpointState.COMMITTED]


def _check_plan(
    connection: Connection, task_graph: TaskGraph, run: RunInfo, number: int, *, is_served: bool
) -> None:
    refuse_misfit(connection, task_graph, run, number)
    if not is_served:
        refuse_while_served(connection, task_graph, run)


def _begin_again(
    connection: Connection, task_graph: TaskGraph, run: RunInfo, number: int
) -> RunInfo:
    record_plan(connection, task_graph)
    return restore_store.restore(connection, run, number, graph_of(task_graph))


def _damaged(database: Database, storage: FileStorage, run: RunInfo, number: int) -> list[str]:
    """The files of a cut that are not as they were, or gone; and those of chunks behind it."""
    checksums = database.transact(lambda c: restore_store.file_checksums(c, run, number))
    behind = database.transact(lambda c: restore_store.files_behind(c, run, number))
    wanted = behind | {it.path: it for it in checksums}
    return [
        file for file, checksum in wanted.items() if not _is_intact(storage.find(file), checksum)
    ]


def _is_intact(found: FileChecksum | None, wanted: FileChecksum | None) -> bool:
    """A file that nobody sealed has at least to be there."""
    return found is not None and wanted in {None, found}


def _intact(
    database: Database, storage: FileStorage, run: RunInfo, numbers: Sequence[int]
) -> Iterator[int]:
    """The newest first."""
    return (it for it in sorted(numbers, reverse=True)
            if not _damaged(database, storage, run, it))  # fmt: skip
