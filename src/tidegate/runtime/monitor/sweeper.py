"""The sweeper removes files and messages of closed runs, and files that were never committed.

A closed run keeps its results and the status of its sources; its messages and all other files are
removed. A file that the database does not refer to is an orphan: its writer failed before the
commit. Before the orphans of a lost writer are removed, its lease is taken, so that a writer that
was only suspended cannot commit any more.

The age of a file is no criterion, because a job may run for any time after it has written a file.
So files of running writers for open runs are kept, also those of failed attempts, until the run is
closed; so are copies of chunks that were never recorded, since their client may still deliver them.

Removal by age is suspended after a jump of the database's clock; see `ClockWatch`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Self

from tidegate.runtime.file_storage import FileEntry, FileStorage
from tidegate.runtime.periodic import PeriodicTask
from tidegate.runtime.worker.task_worker import WORKER
from tidegate.store import (
    ClockWatch,
    acquire,
    files_named,
    free_keys,
    reclaim,
    remove_closed_runs,
    to_reclaim,
    unfinished_among,
)
from tidegate.store.runs import plans, retention

if TYPE_CHECKING:
    from tidegate.runtime.deployment import Deployment
    from tidegate.store import Database

EVERY = 5.0
ALL_EVERY = 300.0
"""Seconds after which all files are examined without a reason: a job may have written files for a
run after it was swept."""
REST = 10
"""The pause after a pass, as a multiple of its duration."""
RETENTION = 30 * 86_400.0
"""Seconds for which a closed run and its results, or a plan that is not served, are kept."""
NEVER = 1e9
SWEEPER = "the sweeper"
"""The owner of the leases of lost writers; all sweepers share it."""
CHUNKS, BATCHES = "chunks", "batches"
_RUN = re.compile(r"/(?:tidegate_)*run=(\d+)/")
"""With a prefix if a user's column is called `run`; see `tidegate.spark.jobs.exchange`."""
_CHECKSUM = re.compile(r"/\.([^/]+)\.crc$")


@dataclass(frozen=True, slots=True)
class Swept:
    """The numbers of runs and files that a pass has removed."""

    runs: int
    files: int


class Sweeper:
    """Sweeps a deployment periodically; several processes may."""

    def __init__(
        self, deployment: Deployment, every: float = EVERY, all_every: float = ALL_EVERY
    ) -> None:
        self._database = deployment.database
        self._storage = FileStorage(deployment.root)
        self._clock = ClockWatch(deployment.database, deployment.settings.clock_settle_seconds)
        self._all_every = all_every
        self._swept_at = -inf
        self._idle_until = -inf
        self._periodic = PeriodicTask("tidegate-sweeper", self._look, every, first_after=every)

    def close(self) -> None:
        """Stop after the pass in progress."""
        self._periodic.close()

    def _look(self) -> None:
        """Sweep if there is a reason to, and then pause."""
        began_at = monotonic()
        if began_at < self._idle_until:
            return
        self._clock.trusts_age(RETENTION)  # notices a jump at once, not only at the next pass
        is_time = began_at - self._swept_at >= self._all_every
        if not (is_time or needs_sweep(self._database, self._storage)):
            return
        while sweep(self._database, self._storage, self._clock).runs:
            pass  # there may be more closed runs than one pass takes
        self._swept_at = began_at
        self._idle_until = monotonic() + REST * (monotonic() - began_at)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def sweep(database: Database, storage: FileStorage, clock: ClockWatch | None = None) -> Swept:
    """One pass over all files. Files are removed before rows, so that a crash repeats the pass."""
    clock = clock or ClockWatch(database)
    if clock.trusts_age(RETENTION):
        _remove_old(database)
    closed = database.transact(to_reclaim)
    files = [*storage.files(CHUNKS), *storage.files(BATCHES)]
    lost = {writer for writer in storage.folders(BATCHES) if _is_lost(database, writer)}
    removed = storage.clear(_orphans(database, files, lost))
    if clock.trusts_age(retention.READ):
        removed += collect(database, storage)
    for run in closed:
        database.transact(partial(reclaim, run=run))
    return Swept(len(closed), removed)


def _remove_old(database: Database) -> None:
    while database.transact(lambda c: remove_closed_runs(c, RETENTION)):
        pass  # a few at a time
    database.transact(lambda c: plans.remove_unused(c, RETENTION))


def collect(database: Database, storage: FileStorage) -> int:
    """Remove files of open runs that no checkpoint needs any more; returns their number."""
    seen = database.transact(retention.unused_files)
    named = database.transact(lambda c: files_named(c, {run for run, _ in seen}))
    removed = storage.clear(path for _, file in seen if file not in named
                            for path in (file, _checksum_of(file)))  # fmt: skip
    if seen:
        database.transact(lambda c: retention.forget_unused(c, seen))
    return removed


def needs_sweep(database: Database, storage: FileStorage) -> bool:
    """Whether a run was closed or a writer was lost since the last pass.

    It is called often, so it examines no file.
    """
    writers = storage.folders(BATCHES)
    return database.transact(
        lambda c: bool(
            to_reclaim(c, limit=1)
            or free_keys(c, WORKER, writers)
            or retention.unused_files(c, limit=1)
        )
    )


def _orphans(database: Database, files: Sequence[FileEntry], lost: set[str]) -> list[str]:
    """Files that no commit refers to, nor can any more.

    References are read last: by then lost writers are fenced, and closed runs stay closed.
    """
    runs = {file.path: _run_of(file.path) for file in files}
    open_runs = database.transact(lambda c: unfinished_among(c, _known(runs.values())))
    suspects = [
        path
        for path, run in runs.items()
        if _writer(path) in lost or (run is not None and run not in open_runs)
    ]
    concerned = _known(runs[path] for path in suspects)
    named = database.transact(lambda c: files_named(c, concerned))
    return [path for path in suspects if _data_of(path) not in named]


def _is_lost(database: Database, writer: str) -> bool:
    """Whether a writer's lease has expired; it is then taken, which fences the writer."""
    take = partial(acquire, kind=WORKER, key=writer, owner=SWEEPER, seconds=NEVER)
    return database.transact(take) is not None


def _data_of(path: str) -> str:
    """The data file of a path, which may be the checksum that Hadoop stores beside it."""
    return _CHECKSUM.sub(r"/\1", path)


def _checksum_of(file: str) -> str:
    """Where Hadoop stores the checksum of a file.

    >>> _checksum_of("batches/a/part-0.parquet")
    'batches/a/.part-0.parquet.crc'
    """
    folder, _, name = file.rpartition("/")
    return f"{folder}/.{name}.crc"


def _writer(path: str) -> str | None:
    folder, _, rest = path.partition("/")
    return rest.partition("/")[0] if folder == BATCHES else None


def _run_of(path: str) -> int | None:
    found = _RUN.search(path)
    return int(found[1]) if found else None


def _known(runs: Iterable[int | None]) -> set[int]:
    return {run for run in runs if run is not None}
