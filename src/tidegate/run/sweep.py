"""The sweeper: gives back the space of closed runs, and of steps that were never committed.

A closed run keeps its results and what is known of its sources; its messages and all its other
files go. A file that nobody names is an orphan: its writer died, or failed, before the commit
that would have named it. Before a dead writer's orphans go, its lease is taken, so that it can
commit nothing any more should it only have been asleep.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Event as Flag
from threading import Thread
from time import time
from typing import TYPE_CHECKING, Self

import msgspec

from tidegate.errors import StoreError
from tidegate.run.storage import Storage, Stored
from tidegate.run.worker import WORKER
from tidegate.spark import Batch
from tidegate.store import (
    acquire,
    files_named,
    reclaim,
    remove_closed_runs,
    results_of,
    to_reclaim,
    unfinished_among,
)

if TYPE_CHECKING:
    from tidegate.run.deployment import Deployment
    from tidegate.store import Database, Run

log = logging.getLogger(__name__)

EVERY = 5.0
ORPHAN_AGE = 900.0
"""Seconds after which a file that nobody names is an orphan although its writer is alive; far
more than lies between writing a file and the commit that names it."""
KEPT = 30 * 86_400.0
"""Seconds for which a closed run and its results stay."""
FOREVER = 1e9
SWEEPER = "the sweeper"
"""Who owns the leases of dead writers: all sweepers are one."""
CHUNKS, BATCHES = "chunks", "batches"
_RUN = re.compile(r"/(?:tidegate_)*run=(\d+)/")
"""Longer where a user's column is called `run`; see `tidegate.spark.exchange`."""
_CHECKSUM = re.compile(r"/\.([^/]+)\.crc$")


@dataclass(frozen=True, slots=True)
class Swept:
    """What a pass has removed."""

    runs: int
    files: int


class Sweeper:
    """Sweeps a deployment now and then; any number of them may."""

    def __init__(self, place: Deployment, every: float = EVERY) -> None:
        self._database = place.database
        self._storage = Storage(place.root)
        self._every = every
        self._closed = Flag()
        self._thread = Thread(target=self._run, name="tidegate-sweeper", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop after the pass at work."""
        self._closed.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._closed.wait(self._every):
            try:
                while sweep(self._database, self._storage).runs:
                    pass  # there may be more closed runs than one pass takes
            except (StoreError, OSError) as trouble:
                log.warning("sweeping goes on later: %s", trouble)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def sweep(database: Database, storage: Storage, orphan_age: float = ORPHAN_AGE) -> Swept:
    """One pass over everything."""
    database.transact(lambda c: remove_closed_runs(c, KEPT))
    closed = database.transact(to_reclaim)
    files = [*storage.files(CHUNKS), *storage.files(BATCHES)]
    removed = _sweep_closed(database, storage, closed, files)
    removed += storage.clear(_orphans(database, files, orphan_age))
    return Swept(len(closed), removed)


def _sweep_closed(
    database: Database, storage: Storage, closed: Sequence[Run], files: Sequence[Stored]
) -> int:
    """Files first: whoever crashes in between begins again."""
    removed = 0
    by_run = _by_run(files)
    for run in closed:
        kept = _result_files(database, run)
        removed += storage.clear(it.path for it in by_run[run.id] if _data_of(it.path) not in kept)
        database.transact(partial(reclaim, run=run))
    return removed


def _result_files(database: Database, run: Run) -> set[str]:
    published = database.transact(lambda c: results_of(c, run)).values()
    batches = (msgspec.convert(it.batches, list[Batch]) for it in published)
    return {file for its in batches for batch in its for file in batch.files}


def _orphans(database: Database, files: Sequence[Stored], orphan_age: float) -> Iterator[str]:
    """Files that no message, chunk or result names, and that nobody can name any more."""
    open_runs = database.transact(lambda c: unfinished_among(c, list(_by_run(files))))
    dead = _dead_writers(database, files)
    old = time() - orphan_age
    suspects = [
        it
        for it in files
        if it.written_at < old
        or _writer(it.path) in dead
        or ((run := _run_of(it.path)) is not None and run not in open_runs)
    ]
    if not suspects:
        return
    named = database.transact(files_named)
    yield from (it.path for it in suspects if _data_of(it.path) not in named)


def _dead_writers(database: Database, files: Iterable[Stored]) -> set[str]:
    """Writers whose lease has run out; taking it fences them off for good."""
    writers = {writer for it in files if (writer := _writer(it.path)) is not None}
    return {writer for writer in writers if _is_dead(database, writer)}


def _is_dead(database: Database, writer: str) -> bool:
    take = partial(acquire, kind=WORKER, key=writer, owner=SWEEPER, seconds=FOREVER)
    return database.transact(take) is not None


def _data_of(path: str) -> str:
    """The file that a path stands for: Hadoop keeps a checksum beside each, and reads it too."""
    return _CHECKSUM.sub(r"/\1", path)


def _writer(path: str) -> str | None:
    folder, _, rest = path.partition("/")
    return rest.partition("/")[0] if folder == BATCHES else None


def _run_of(path: str) -> int | None:
    found = _RUN.search(path)
    return int(found[1]) if found else None


def _by_run(files: Iterable[Stored]) -> dict[int, list[Stored]]:
    runs: dict[int, list[Stored]] = defaultdict(list)
    for it in files:
        run = _run_of(it.path)
        if run is not None:
            runs[run].append(it)
    return runs
