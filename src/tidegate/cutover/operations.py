"""Operations on cutovers: start, status of the indexes, reverse, retire, feed."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from tidegate.cutover.values import CutoverRequest, FeedRequest
from tidegate.errors import (
    CutoverRefused,
    FeedRefused,
    IndexBehind,
    IndexInUse,
    IndexUnfed,
    NothingToReverse,
    counted,
)
from tidegate.flows import FlowState
from tidegate.flows.client import FlowRun
from tidegate.store.cutover.indexes import SwitchRecord, held, switches, was_shown
from tidegate.store.flows import runs as store

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from tidegate.cutover.reindex import Reindex
    from tidegate.cutover.source import TableSource
    from tidegate.cutover.targets import Indexes
    from tidegate.store import Connection, Database
    from tidegate.store.cutover.change_log import Lag
    from tidegate.store.flows.runs import FlowRunInfo

log = logging.getLogger(__name__)

POLL_EVERY = 0.1
END_BOUND = 30.0
"""Seconds to wait for the end of a feed."""
LAG_BOUND = 3.0
"""Seconds to wait for the source before switching to a possibly stale index."""


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """An index of an alias: whether readers use it, and how fresh it is."""

    index: str
    is_current: bool
    run: int | None
    """The run that creates it or keeps it fresh; None if there is none."""
    flow: str | None
    offset: int | None
    """It has all changes up to here; the log is retained from here on."""
    pending: int | None
    """Changes that it lacks, counted up to 10,000."""
    behind: float | None
    """Seconds since the oldest of them."""
    switched_at: datetime | None
    held_up_by: str = ""
    """What blocks its changes, as text."""
    is_here: bool = True
    """Otherwise only the log is retained for it, and `index` is its identity: it belongs to another
    deployment or was dropped manually."""


def start_cutover(database: Database, reindex: Reindex, index: str) -> FlowRun:
    """Start a cutover to an index; if it was started before, return that run.

    A `Reindex`, identified by its name, has one cutover at a time, since the earlier of two might
    switch last. Raises `CutoverRefused` for a second one.
    """
    defined = reindex.flow.definition
    value = defined.input.encode(CutoverRequest(index))
    with reindex.target.open(database) as indexes:
        name = indexes.qualified(index)

        def start(connection: Connection) -> int:
            with held(connection, indexes.alias):
                _check_alone(connection, reindex, indexes, name)
            run = store.begin_flow(connection, reindex.name, index, value, defined.as_rows())
            _check_not_removed(store.flow_run(connection, run), indexes, name)
            return run

        return FlowRun(database.transact(start), reindex.flow, database)


def _check_alone(connection: Connection, reindex: Reindex, indexes: Indexes, index: str) -> None:
    if index == indexes.alias:
        raise CutoverRefused(index, "that is the name of the alias; choose another one")
    for name, run in _keepers(connection, reindex, indexes):
        if run.flow == reindex.name and name != index:
            reason = f"run {run.id} is switching readers to {name}; wait for it, or cancel it"
            raise CutoverRefused(index, reason)


def _check_not_removed(run: FlowRunInfo, indexes: Indexes, index: str) -> None:
    is_over = run.state in {FlowState.COMPLETED, FlowState.CANCELED}
    if is_over and not indexes.is_there(index):
        raise CutoverRefused(
            index, f"run {run.id} has used this name and is over; choose another one"
        )


def indexes_of(database: Database, reindex: Reindex) -> list[IndexStatus]:
    """The indexes of an alias, and other consumers that the log of its table is retained for."""
    with reindex.opened(database) as (source, indexes):
        current = indexes.current()
        found = database.transact(lambda c: switches(c, indexes.alias))
        times = {it.index: it.at for it in reversed(found)}
        keepers = _all_keepers(database, reindex, source, indexes)
        ordered = sorted(keepers.items(), key=lambda it: it[0] != current)
        return [
            _status(source, name, it, is_current=name == current, switched_at=times.get(name))
            for name, it in ordered
        ]


def reverse(
    database: Database,
    reindex: Reindex,
    *,
    by: str,
    bound: float = 30.0,
    allow_stale: bool = False,
) -> str:
    """Switch readers back to the previous index; returns its name.

    First waits until that index has everything that was committed at the time of the call.
    """
    with reindex.opened(database) as (source, indexes):
        previous = _previous(database, indexes)
        offset = partial(_offset, database, reindex, indexes, previous)
        blocked_by = partial(_blocked_by, database, reindex, indexes, previous)
        if not allow_stale:
            _wait_fresh(source, previous, offset, bound, blocked_by)
        lag = _lag_or_none(source, offset())
        indexes.switch(previous, SwitchRecord(by, lag=lag), database.transact)
        return previous


def retire(database: Database, reindex: Reindex, index: str) -> None:
    """Remove an index that readers do not use, and its feed.

    Excluded from switches first, then unregistered, and dropped last: after a failure it can be
    repeated.
    """
    with reindex.opened(database) as (source, indexes):
        name = indexes.qualified(index)
        for run in _give_up(database, reindex, indexes, name):
            _wait_ended(database, name, run)
        source.forget_consumer(indexes.identity(name))
        indexes.drop(name)


def feed(database: Database, reindex: Reindex, index: str) -> FlowRun:
    """Start a feed for an index that has none; returns its run.

    Raises `FeedRefused` if the index has a feed, `NotFollowed` if the log lacks changes it needs.
    """
    key = uuid4().hex
    with reindex.opened(database) as (source, indexes):
        name = indexes.qualified(index)
        offset = source.registered(indexes.identity(name))

        def start(connection: Connection) -> int:
            with held(connection, indexes.alias):
                _check_unfed(connection, reindex, indexes, name, key)
            defined = reindex.feed.definition
            value = defined.input.encode(FeedRequest(name, offset))
            return store.begin_flow(connection, reindex.feed.name, key, value, defined.as_rows())

        return FlowRun(database.transact(start), reindex.feed, database)


def _check_unfed(
    connection: Connection, reindex: Reindex, indexes: Indexes, index: str, key: str
) -> None:
    """A run under this key is the one being started: its transaction was repeated."""
    indexes.check_usable(index)
    for run in _keepers_of(connection, reindex, indexes, index):
        if run.key != key:
            raise FeedRefused(index, f"run {run.id} of {run.flow} keeps it fresh")
    if not was_shown(connection, indexes.alias, index):
        reason = "it was never switched to, so it may lack rows; retire it and create another index"
        raise FeedRefused(index, reason)


def _give_up(database: Database, reindex: Reindex, indexes: Indexes, index: str) -> list[int]:
    """Exclude an index from switches and cancel its feeds, in one transaction."""
    ended: list[int] = []

    def together(work: Callable[[Any], None]) -> None:
        def both(connection: Connection) -> None:
            work(connection)
            ended[:] = _end_feeds(connection, reindex, indexes, index)

        database.transact(both)

    indexes.give_up(index, together)
    return ended


def _end_feeds(connection: Connection, reindex: Reindex, indexes: Indexes, index: str) -> list[int]:
    keepers = _keepers_of(connection, reindex, indexes, index)
    for run in keepers:
        if run.flow == reindex.name:
            raise IndexInUse(index, f"run {run.id} is creating it; cancel that first")
        store.cancel_flow(connection, run.id, "its index is retired")
    return [it.id for it in keepers]


def _previous(database: Database, indexes: Indexes) -> str:
    alias = indexes.alias
    found = database.transact(lambda c: switches(c, alias, 1))
    if not found or found[0].previous is None:
        raise NothingToReverse(alias, "it has never pointed to another index")
    previous = found[0].previous
    if previous == indexes.current():
        raise NothingToReverse(alias, f"it points to {previous} already")
    if not indexes.is_there(previous):
        raise NothingToReverse(alias, f"{previous} was removed")
    return previous


def _wait_fresh(
    source: TableSource,
    index: str,
    offset: Callable[[], int | None],
    bound: float,
    blocked_by: Callable[[], str],
) -> None:
    watermark, deadline = source.head(), monotonic() + bound
    while (known := offset()) is None or known < watermark:
        if known is None:
            raise IndexUnfed(index)
        if monotonic() > deadline:
            lag = source.lag(known)
            changes = counted(lag.changes, "change")
            raise IndexBehind(index, changes, lag.seconds, bound, blocked_by())
        sleep(POLL_EVERY)


def _wait_ended(database: Database, index: str, run: int) -> None:
    deadline = monotonic() + END_BOUND
    while database.transact(lambda c: store.flow_run(c, run)).closed_at is None:
        if monotonic() > deadline:
            raise IndexInUse(index, f"its feed, run {run}, does not end; check its worker")
        sleep(POLL_EVERY)


def _lag_or_none(source: TableSource, offset: int | None) -> Lag | None:
    """The lag, or None if the source does not answer, which must not prevent a reverse."""
    if offset is None:
        return None
    try:
        return source.lag(offset, LAG_BOUND)
    except Exception as error:  # noqa: BLE001  a source raises anything
        log.warning("cannot read the lag of %s: %s", source.table, error)
        return None


# ── runs that keep indexes fresh ──


@dataclass(frozen=True, slots=True)
class _Keeper:
    """The run that keeps an index fresh, and how far it is."""

    run: FlowRunInfo | None = None
    offset: int | None = None
    blocked_by: str = ""
    is_here: bool = True


def _keepers(
    connection: Connection, reindex: Reindex, indexes: Indexes
) -> list[tuple[str, FlowRunInfo]]:
    """The open runs that create indexes or keep them fresh."""
    names = [reindex.feed.name, reindex.name]
    found = store.open_flows_by_input(connection, names, "index")
    return [(indexes.qualified(name), run) for name, run in found]


def _keepers_of(
    connection: Connection, reindex: Reindex, indexes: Indexes, index: str
) -> list[FlowRunInfo]:
    return [run for name, run in _keepers(connection, reindex, indexes) if name == index]


def _offset(database: Database, reindex: Reindex, indexes: Indexes, index: str) -> int | None:
    """How far an index is; None if no run keeps it fresh."""
    found = database.transact(lambda c: _keepers_of(c, reindex, indexes, index))
    return max((_read_keeper(database, it).offset or 0 for it in found), default=None)


def _blocked_by(database: Database, reindex: Reindex, indexes: Indexes, index: str) -> str:
    """What blocks the changes of an index, as its runs report."""
    found = database.transact(lambda c: _keepers_of(c, reindex, indexes, index))
    reasons = [_read_keeper(database, run).blocked_by for run in found]
    return "; ".join(filter(None, reasons)) or "check that workers for its feed are running"


def _read_keeper(database: Database, run: FlowRunInfo) -> _Keeper:
    _, values = database.transact(lambda c: store.flow_state(c, run.id))
    found = {key: msgspec.json.decode(it.json) for key, it in values.items() if it.json is not None}
    return _Keeper(run, found.get("consumer_offset"), found.get("held_up_by") or "")


def _all_keepers(
    database: Database, reindex: Reindex, source: TableSource, indexes: Indexes
) -> dict[str, _Keeper]:
    """By index; and by identity for consumers that are no index of this alias."""
    known, consumers = indexes.known(), source.consumers()
    keepers = database.transact(lambda c: _keepers(c, reindex, indexes))
    foreign = consumers.keys() - set(known.values())
    return {
        **{name: _Keeper(offset=consumers.get(it)) for name, it in known.items()},
        **{name: _read_keeper(database, run) for name, run in keepers},
        **{it: _Keeper(offset=consumers[it], is_here=False) for it in sorted(foreign)},
    }


def _status(
    source: TableSource,
    index: str,
    keeper: _Keeper,
    *,
    is_current: bool,
    switched_at: datetime | None,
) -> IndexStatus:
    run, offset = keeper.run, keeper.offset
    lag = source.lag(offset) if offset is not None else None
    return IndexStatus(
        index=index,
        is_current=is_current,
        run=run.id if run else None,
        flow=run.flow if run else None,
        offset=offset,
        pending=lag.changes if lag else None,
        behind=lag.seconds if lag else None,
        switched_at=switched_at,
        held_up_by=keeper.blocked_by,
        is_here=keeper.is_here,
    )
