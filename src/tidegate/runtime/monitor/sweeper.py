"""The sweeper: gives back the space of closed runs, and of steps that were never committed.

A closed run keeps its results and what is known of its sources; its messages and all its other
files go. A file that nobody names is an orphan: its writer died, or failed, before the commit
that would have named it. Before a dead writer's orphans go, its lease is taken, so that it can
commit nothing any more should it only have been asleep.

How old a file is says nothing: tasks put files where they stay while their job is still at work,
for as long as it takes. So what a living writer has written for an open run stays, and what it
failed with goes with the run; so does the copy of a chunk that was never recorded, for nobody can
tell whether its client is gone.

What goes by its age stays for a while after the database's clock has jumped; see `ClockWatch`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Self

from tidegate.runtime.file_storage import FileStorage, StoredFile
from tidegate.runtime.periodic import PeriodicTask
from tidegate.runtime.worker.worker import WORKER
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
"""Seconds after which all files are looked at although there is no news: a job may have written
for a run after that was swept."""
REST = 10
"""How many times as long as a pass took nobody sweeps after it."""
KEPT = 30 * 86_400.0
"""Seconds for which a closed run and its results stay; so does a plan that nobody serves."""
FOREVER = 1e9
SWEEPER = "the sweeper"
"""Who owns the leases of dead writers: all sweepers are one."""
CHUNKS, BATCHES = "chunks", "batches"
_RUN = re.compile(r"/(?:tidegate_)*run=(\d+)/")
"""Longer where a user's column is called `run`; see `tidegate.spark.jobs.exchange`."""
_CHECKSUM = re.compile(r"/\.([^/]+)\.crc$")


@dataclass(frozen=True, slots=True)
class Swept:
    """What a pass has removed."""

    runs: int
    files: int


class Sweeper:
    """Sweeps a deployment now and then; any number of them may."""

    def __init__(
        self, place: Deployment, every: float = EVERY, all_every: float = ALL_EVERY
    ) -> None:
        self._database = place.database
        self._storage = FileStorage(place.root)
        self._clock = ClockWatch(place.database, place.settings.clock_settle_seconds)
        self._all_every = all_every
        self._swept_at = -inf
        self._rests_until = -inf
        self._tending = PeriodicTask("tidegate-sweeper", self._look, every, first_after=every)

    def close(self) -> None:
        """Stop after the pass at work."""
        self._tending.close()

    def _look(self) -> None:
        """Sweep if there is a reason to, and then rest for a while."""
        began_at = monotonic()
        if began_at < self._rests_until:
            return
        self._clock.trusts_age(KEPT)  # a jump is seen at once, and not only at the next pass
        is_time = began_at - self._swept_at >= self._all_every
        if not (is_time or has_news(self._database, self._storage)):
            return
        while sweep(self._database, self._storage, self._clock).runs:
            pass  # there may be more closed runs than one pass takes
        self._swept_at = began_at
        self._rests_until = monotonic() + REST * (monotonic() - began_at)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def sweep(database: Database, storage: FileStorage, clock: ClockWatch | None = None) -> Swept:
    """One pass over everything. Files go first: whoever crashes in between begins again."""
    clock = clock or ClockWatch(database)
    if clock.trusts_age(KEPT):
        _remove_old(database)
    closed = database.transact(to_reclaim)
    files = [*storage.files(CHUNKS), *storage.files(BATCHES)]
    dead = {writer for writer in storage.folders(BATCHES) if _is_dead(database, writer)}
    removed = storage.clear(_orphans(database, files, dead))
    if clock.trusts_age(retention.READ):
        removed += collect(database, storage)
    for run in closed:
        database.transact(partial(reclaim, run=run))
    return Swept(len(closed), removed)


def _remove_old(database: Database) -> None:
    while database.transact(lambda c: remove_closed_runs(c, KEPT)):
        pass  # a few at a time
    database.transact(lambda c: plans.remove_unused(c, KEPT))


def collect(database: Database, storage: FileStorage) -> int:
    """Remove files of open runs that no cut needs any more; how many."""
    seen = database.transact(retention.unused_files)
    named = database.transact(lambda c: files_named(c, {run for run, _ in seen}))
    removed = storage.clear(path for _, file in seen if file not in named
                            for path in (file, _checksum_of(file)))  # fmt: skip
    if seen:
        database.transact(lambda c: retention.forget_unused(c, seen))
    return removed


def has_news(database: Database, storage: FileStorage) -> bool:
    """Whether a run was closed, or a writer has died, and nobody has swept since.

    This is asked often, so it looks at no file.
    """
    writers = storage.folders(BATCHES)
    return database.transact(
        lambda c: bool(
            to_reclaim(c, limit=1)
            or free_keys(c, WORKER, writers)
            or retention.unused_files(c, limit=1)
        )
    )


def _orphans(database: Database, files: Sequence[StoredFile], dead: set[str]) -> list[str]:
    """Files that nobody names, and that nobody can name any more.

    Who names what is asked last: by then the dead are fenced off, and closed runs stay closed.
    """
    runs = {it.path: _run_of(it.path) for it in files}
    open_runs = database.transact(lambda c: unfinished_among(c, _known(runs.values())))
    suspects = [
        path
        for path, run in runs.items()
        if _writer(path) in dead or (run is not None and run not in open_runs)
    ]
    concerned = _known(runs[path] for path in suspects)
    named = database.transact(lambda c: files_named(c, concerned))
    return [path for path in suspects if _data_of(path) not in named]


def _is_dead(database: Database, writer: str) -> bool:
    """Whether a writer's lease has run out; taking it fences the writer off for good."""
    take = partial(acquire, kind=WORKER, key=writer, owner=SWEEPER, seconds=FOREVER)
    return database.transact(take) is not None


def _data_of(path: str) -> str:
    """The file that a path stands for: Hadoop keeps a checksum beside each, and reads it too."""
    return _CHECKSUM.sub(r"/\1", path)


def _checksum_of(file: str) -> str:
    """Where Hadoop keeps the checksum of a file.

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
