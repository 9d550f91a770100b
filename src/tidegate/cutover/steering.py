"""After a cutover: which indexes there are, going back to the one before, removing old ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from time import monotonic, sleep
from typing import TYPE_CHECKING

import msgspec

from tidegate.errors import IndexBehind, IndexInUse, NothingToReverse, counted
from tidegate.store import flows as store
from tidegate.store.indexes import Noted, switches

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from tidegate.cutover.reindex import Reindex
    from tidegate.cutover.source import Source
    from tidegate.cutover.targets import Indexes
    from tidegate.store import Database
    from tidegate.store.flows import FlowRun

LOOK_EVERY = 0.1


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """An index of an alias: what it is to readers, and how fresh it is."""

    index: str
    is_current: bool
    run: int | None
    """Of the flow that makes it or keeps it fresh; None: nobody does."""
    flow: str | None
    offset: int | None
    pending: int | None
    """Changes that it does not have, of 10,000 at most."""
    behind: float | None
    """Seconds since the oldest of those was made."""
    switched_at: datetime | None
    held_up_by: str = ""
    """What keeps changes from it, for people."""


def indexes_of(database: Database, reindex: Reindex) -> list[IndexStatus]:
    """The indexes that an alias stands for, stood for or is to stand for."""
    with reindex.opened(database) as (source, indexes):
        current = indexes.current()
        found = database.transact(lambda c: switches(c, reindex.target.alias))
        times = {it.index: it.at for it in reversed(found)}
        keepers = {indexes.qualified(name): run for name, run in _keepers(database, reindex)}
        names = dict.fromkeys([*([current] if current else []), *keepers, *times])
        return [
            _status(database, source, name, keepers.get(name), times.get(name), name == current)
            for name in names
            if name == current or name in keepers or indexes.is_there(name)
        ]


def reverse(
    database: Database,
    reindex: Reindex,
    *,
    by: str,
    bound: float = 30.0,
    is_stale_borne: bool = False,
) -> str:
    """Let readers go back to the index before; answers which that is.

    First it is waited until that one has everything that was committed when this was asked for.
    """
    with reindex.opened(database) as (source, indexes):
        previous = _previous(database, reindex.target.alias, indexes)
        offset = partial(_offset, database, reindex, indexes, previous)
        if not is_stale_borne:
            _wait_fresh(source, previous, offset, bound)
        lag = source.lag(offset())
        indexes.switch(previous, Noted(by, lag=lag), database.transact)
        return previous


def retire(database: Database, reindex: Reindex, index: str) -> None:
    """Remove an index that readers do not use, and what keeps it fresh."""
    with reindex.opened(database) as (source, indexes):
        name = indexes.qualified(index)
        if indexes.current() == name:
            raise IndexInUse(name, f"{reindex.target.alias} stands for it; reverse that first")
        keepers = [it for at, it in _keepers(database, reindex) if indexes.qualified(at) == name]
        for run in keepers:
            if run.flow == reindex.name:
                raise IndexInUse(name, f"run {run.id} is making it; cancel that first")
        indexes.check_owner(name)
        identity = indexes.identity(name)
        for run in keepers:
            database.transact(lambda c, it=run: store.cancel_flow(c, it.id, "its index is retired"))  # type: ignore[misc]
            _wait_ended(database, run.id)
        indexes.drop(name)
        source.forget_follower(identity)


def _previous(database: Database, alias: str, indexes: Indexes) -> str:
    found = database.transact(lambda c: switches(c, alias, 1))
    if not found or found[0].previous is None:
        raise NothingToReverse(alias, "it never stood for another index")
    previous = found[0].previous
    if previous == indexes.current():
        raise NothingToReverse(alias, f"it stands for {previous} already")
    if not indexes.is_there(previous):
        raise NothingToReverse(alias, f"{previous} was removed")
    return previous


def _wait_fresh(source: Source, index: str, offset: Callable[[], int], bound: float) -> None:
    watermark, deadline = source.head(), monotonic() + bound
    while offset() < watermark:
        if monotonic() > deadline:
            lag = source.lag(offset())
            raise IndexBehind(index, counted(lag.changes, "change"), lag.seconds, bound)
        sleep(LOOK_EVERY)


def _wait_ended(database: Database, run: int, bound: float = 30.0) -> None:
    deadline = monotonic() + bound
    while database.transact(lambda c: store.flow_run(c, run)).closed_at is None:
        if monotonic() > deadline:
            raise IndexInUse(str(run), "its feed does not end; is its worker frozen?")
        sleep(LOOK_EVERY)


def _keepers(database: Database, reindex: Reindex) -> list[tuple[str, FlowRun]]:
    """The open runs that make indexes or keep them fresh."""
    names = [reindex.feed.name, reindex.name]
    return database.transact(lambda c: store.open_flows_by_input(c, names, "index"))


def _offset(database: Database, reindex: Reindex, indexes: Indexes, index: str) -> int:
    for name, run in _keepers(database, reindex):
        if indexes.qualified(name) == index:
            return _state_of(database, run.id).offset or 0
    return 0


@dataclass(frozen=True, slots=True)
class _Keeping:
    offset: int | None = None
    trouble: str = ""


def _state_of(database: Database, run: int) -> _Keeping:
    _, values = database.transact(lambda c: store.flow_state(c, run))
    found = {key: msgspec.json.decode(it.json) for key, it in values.items() if it.json is not None}
    return _Keeping(found.get("consumer_offset"), found.get("held_up_by") or "")


def _status(
    database: Database,
    source: Source,
    index: str,
    keeper: FlowRun | None,
    at: datetime | None,
    is_current: bool,
) -> IndexStatus:
    keeping = _state_of(database, keeper.id) if keeper else _Keeping()
    lag = source.lag(keeping.offset) if keeping.offset is not None else None
    return IndexStatus(
        index,
        is_current,
        keeper.id if keeper else None,
        keeper.flow if keeper else None,
        keeping.offset,
        lag.changes if lag else None,
        lag.seconds if lag else None,
        at,
        keeping.trouble,
    )
