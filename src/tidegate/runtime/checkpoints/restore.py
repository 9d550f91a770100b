"""Restoring a run to one of its cuts: what it needs is checked before anything is changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tidegate.checkpoint import CheckpointState
from tidegate.errors import CutDamaged, NoSuchCut, listed
from tidegate.plan import plan_hash
from tidegate.runtime.checkpoints.plan_compatibility import (
    record_plan,
    refuse_misfit,
    refuse_while_served,
)
from tidegate.runtime.file_storage import Storage
from tidegate.runtime.task_graph import HEAD, lane_names
from tidegate.store import LaneName, RunState
from tidegate.store.checkpoints import checkpoints as checkpoint_store
from tidegate.store.checkpoints import restore as restore_store

if TYPE_CHECKING:
    from tidegate.runtime.deployment import Deployment
    from tidegate.runtime.task_graph import Assembly
    from tidegate.store import Connection, Database, Run, SealedFile
    from tidegate.store.checkpoints.restore import Graph


def restore(
    place: Deployment,
    assembly: Assembly,
    run: Run,
    number: int | None = None,
    *,
    is_served: bool = False,
) -> Run:
    """Begin a run again at a cut, by default its latest, under the plan of `assembly`.

    `is_served` says that the caller serves that plan. Raises `NoSuchCut`; `OtherPlan` when what the
    run keeps does not fit, `StillServed` when somebody else may go on under the plan that it had;
    or `CutDamaged`, which names the newest cut that is intact.
    """
    database, storage = place.database, Storage(place.root)
    if run.state is RunState.ENDED:
        raise NoSuchCut(run.name, "a cut to go on from", "none, for it has ended")
    known = _cuts(database, run)
    wanted = number if number is not None else max(known, default=0)
    if wanted not in known:
        asked = "any cut" if number is None else f"cut {number}"
        raise NoSuchCut(run.name, asked, listed([str(it) for it in known] or ["none"]))
    database.transact(lambda c: _check_plan(c, assembly, run, wanted, is_served=is_served))
    damaged = _damaged(database, storage, run, wanted)
    if damaged:
        intact = next(_intact(database, storage, run, [it for it in known if it != wanted]), None)
        raise CutDamaged(run.name, wanted, listed(damaged), f"cut {intact}" if intact else "none")
    return database.transact(lambda c: _begin_again(c, assembly, run, wanted))


def graph_of(assembly: Assembly) -> Graph:
    """The lanes of a plan, as its runs have them."""
    sources = {
        source: [[LaneName(HEAD, task) for task in tasks] for tasks in readers]
        for source, readers in assembly.sources.items()
    }
    heads = [lane.to_task for each in sources.values() for lanes in each for lane in lanes]
    return restore_store.Graph(plan_hash(assembly.plan), lane_names(assembly.links, heads), sources)


def _cuts(database: Database, run: Run) -> list[int]:
    every = database.transact(lambda c: checkpoint_store.checkpoints_of(c, run))
    return [it.number for it in every if it.state is CheckpointState.COMMITTED]


def _check_plan(
    connection: Connection, assembly: Assembly, run: Run, number: int, *, is_served: bool
) -> None:
    refuse_misfit(connection, assembly, run, number)
    if not is_served:
        refuse_while_served(connection, assembly, run)


def _begin_again(connection: Connection, assembly: Assembly, run: Run, number: int) -> Run:
    record_plan(connection, assembly)
    return restore_store.restore(connection, run, number, graph_of(assembly))


def _damaged(database: Database, storage: Storage, run: Run, number: int) -> list[str]:
    """The files of a cut that are not as they were, or gone; and those of chunks behind it."""
    sealed = database.transact(lambda c: restore_store.sealed_files(c, run, number))
    behind = database.transact(lambda c: restore_store.files_behind(c, run, number))
    wanted = behind | {it.path: it for it in sealed}
    return [file for file, seal in wanted.items() if not _is_intact(storage.find(file), seal)]


def _is_intact(found: SealedFile | None, wanted: SealedFile | None) -> bool:
    """A file that nobody sealed has at least to be there."""
    return found is not None and wanted in {None, found}


def _intact(
    database: Database, storage: Storage, run: Run, numbers: Sequence[int]
) -> Iterator[int]:
    """The newest first."""
    return (it for it in sorted(numbers, reverse=True)
            if not _damaged(database, storage, run, it))  # fmt: skip
