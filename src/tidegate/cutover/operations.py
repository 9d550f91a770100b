"""Beginning cutovers, and after one: which indexes there are, going back, removing old ones."""

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
    from tidegate.cutover.source import Source
    from tidegate.cutover.targets import Indexes
    from tidegate.store import Connection, Database
    from tidegate.store.cutover.change_log import Lag
    from tidegate.store.flows.runs import FlowRunInfo

log = logging.getLogger(__name__)

LOOK_EVERY = 0.1
END_BOUND = 30.0
"""Seconds for which it is waited that a feed ends."""
LAG_BOUND = 3.0
"""Seconds for which a source is asked how stale an index is that is switched to all the same."""


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """An index of an alias: what it is to readers, and how fresh it is."""

    index: str
    is_current: bool
    run: int | None
    """Of the flow that makes it or keeps it fresh; None: nobody does."""
    flow: str | None
    offset: int | None
    """Up to where it has all changes; the log is kept from there on."""
    pending: int | None
    """Changes that it does not have, of 10,000 at most."""
    behind: float | None
    """Seconds since the oldest of those was made."""
    switched_at: datetime | None
    held_up_by: str = ""
    """What keeps changes from it, for people."""
    is_here: bool = True
    """Otherwise the log is kept for it, and `index` is its identity: it is another deployment's,
    or was dropped by hand."""


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
        raise CutoverRefused(index, "that is the name of the alias itself; give it another one")
    for name, run in _keepers(connection, reindex, indexes):
        if run.flow == reindex.name and name != index:
            reason = f"run {run.id} is moving readers to {name}; wait for it, or cancel it"
            raise CutoverRefused(index, reason)


def _check_not_removed(run: FlowRunInfo, indexes: Indexes, index: str) -> None:
    is_over = run.state in {FlowState.COMPLETED, FlowState.CANCELED}
    if is_over and not indexes.is_there(index):
        raise CutoverRefused(index, f"run {run.id} had this name, and is over; give it another one")


def indexes_of(database: Database, reindex: Reindex) -> list[IndexStatus]:
    """The indexes of an alias, and whatever else the log of its table is kept for."""
    with reindex.opened(database) as (source, indexes):
        current = indexes.current()
        found = database.transact(lambda c: switches(c, indexes.alias))
        times = {it.index: it.at for it in reversed(found)}
        keeping = _all_keeping(database, reindex, source, indexes)
        ordered = sorted(keeping.items(), key=lambda it: it[0] != current)
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
    is_stale_borne: bool = False,
) -> str:
    """Let readers go back to the index before; answers which that is.

    First it is waited until that one has everything that was committed when this was asked for.
    """
    with reindex.opened(database) as (source, indexes):
        previous = _previous(database, indexes)
        offset = partial(_offset, database, reindex, indexes, previous)
        trouble = partial(_trouble, database, reindex, indexes, previous)
        if not is_stale_borne:
            _wait_fresh(source, previous, offset, bound, trouble)
        lag = _lag_if_told(source, offset())
        indexes.switch(previous, SwitchRecord(by, lag=lag), database.transact)
        return previous


def retire(database: Database, reindex: Reindex, index: str) -> None:
    """Remove an index that readers do not use, and what keeps it fresh.

    Given up first, forgotten then, and dropped last: after a crash it can be done again.
    """
    with reindex.opened(database) as (source, indexes):
        name = indexes.qualified(index)
        for run in _give_up(database, reindex, indexes, name):
            _wait_ended(database, name, run)
        source.forget_follower(indexes.identity(name))
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
    """A run under this key is the one that is begun: its transaction was repeated."""
    indexes.check_usable(index)
    for run in _keepers_of(connection, reindex, indexes, index):
        if run.key != key:
            raise FeedRefused(index, f"run {run.id} of {run.flow} keeps it fresh")
    if not was_shown(connection, indexes.alias, index):
        reason = "readers never saw it, so it may lack rows; retire it, and begin another index"
        raise FeedRefused(index, reason)


def _give_up(database: Database, reindex: Reindex, indexes: Indexes, index: str) -> list[int]:
    """Let nobody switch to an index any more, and end its feeds; or nothing of both."""
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
            raise IndexInUse(index, f"run {run.id} is making it; cancel that first")
        store.cancel_flow(connection, run.id, "its index is retired")
    return [it.id for it in keepers]


def _previous(database: Database, indexes: Indexes) -> str:
    alias = indexes.alias
    found = database.transact(lambda c: switches(c, alias, 1))
    if not found or found[0].previous is None:
        raise NothingToReverse(alias, "it never stood for another index")
    previous = found[0].previous
    if previous == indexes.current():
        raise NothingToReverse(alias, f"it stands for {previous} already")
    if not indexes.is_there(previous):
        raise NothingToReverse(alias, f"{previous} was removed")
    return previous


def _wait_fresh(
    source: Source,
    index: str,
    offset: Callable[[], int | None],
    bound: float,
    trouble: Callable[[], str],
) -> None:
    watermark, deadline = source.head(), monotonic() + bound
    while (known := offset()) is None or known < watermark:
        if known is None:
            raise IndexUnfed(index)
        if monotonic() > deadline:
            lag = source.lag(known)
            changes = counted(lag.changes, "change")
            raise IndexBehind(index, changes, lag.seconds, bound, trouble())
        sleep(LOOK_EVERY)


def _wait_ended(database: Database, index: str, run: int) -> None:
    deadline = monotonic() + END_BOUND
    while database.transact(lambda c: store.flow_run(c, run)).closed_at is None:
        if monotonic() > deadline:
            raise IndexInUse(index, f"its feed, run {run}, does not end; is its worker frozen?")
        sleep(LOOK_EVERY)


def _lag_if_told(source: Source, offset: int | None) -> Lag | None:
    """Whoever goes back may do so because the source is in trouble; that is no reason not to."""
    if offset is None:
        return None
    try:
        return source.lag(offset, LAG_BOUND)
    except Exception as trouble:  # noqa: BLE001  whatever a source refuses with
        log.warning("%s does not say how stale the index is: %s", source.table, trouble)
        return None


# ── what keeps indexes fresh ──


@dataclass(frozen=True, slots=True)
class _Keeping:
    """What is done for an index: by which run, and how far that is."""

    run: FlowRunInfo | None = None
    offset: int | None = None
    trouble: str = ""
    is_here: bool = True


def _keepers(
    connection: Connection, reindex: Reindex, indexes: Indexes
) -> list[tuple[str, FlowRunInfo]]:
    """The open runs that make indexes or keep them fresh."""
    names = [reindex.feed.name, reindex.name]
    found = store.open_flows_by_input(connection, names, "index")
    return [(indexes.qualified(name), run) for name, run in found]


def _keepers_of(
    connection: Connection, reindex: Reindex, indexes: Indexes, index: str
) -> list[FlowRunInfo]:
    return [run for name, run in _keepers(connection, reindex, indexes) if name == index]


def _offset(database: Database, reindex: Reindex, indexes: Indexes, index: str) -> int | None:
    """How far an index is; None when nobody keeps it fresh."""
    found = database.transact(lambda c: _keepers_of(c, reindex, indexes, index))
    return max((_keeping(database, it).offset or 0 for it in found), default=None)


def _trouble(database: Database, reindex: Reindex, indexes: Indexes, index: str) -> str:
    """What keeps changes from an index, as far as its keepers say."""
    found = database.transact(lambda c: _keepers_of(c, reindex, indexes, index))
    told = [_keeping(database, it).trouble for it in found]
    return "; ".join(it for it in told if it) or "see that workers for its feed are alive"


def _keeping(database: Database, run: FlowRunInfo) -> _Keeping:
    _, values = database.transact(lambda c: store.flow_state(c, run.id))
    found = {key: msgspec.json.decode(it.json) for key, it in values.items() if it.json is not None}
    return _Keeping(run, found.get("consumer_offset"), found.get("held_up_by") or "")


def _all_keeping(
    database: Database, reindex: Reindex, source: Source, indexes: Indexes
) -> dict[str, _Keeping]:
    """Of each index, and under its identity of what is none here and still keeps the log."""
    known, followers = indexes.known(), source.followers()
    keepers = database.transact(lambda c: _keepers(c, reindex, indexes))
    strangers = followers.keys() - set(known.values())
    return {
        **{name: _Keeping(offset=followers.get(it)) for name, it in known.items()},
        **{name: _keeping(database, run) for name, run in keepers},
        **{it: _Keeping(offset=followers[it], is_here=False) for it in sorted(strangers)},
    }


def _status(
    source: Source,
    index: str,
    keeping: _Keeping,
    *,
    is_current: bool,
    switched_at: datetime | None,
) -> IndexStatus:
    run, offset = keeping.run, keeping.offset
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
        held_up_by=keeping.trouble,
        is_here=keeping.is_here,
    )
