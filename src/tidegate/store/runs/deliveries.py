"""Deliveries: chunks of a run's sources come in, and END when a source is complete.

A chunk is recorded, counted and put on the channels of its tasks in one transaction, under a lock
on its source. Behind it comes the source's watermark, if the chunk has moved that: on all channels
of the source, because it is about all of them. Whichever comes last, the last chunk or the word how
many there are, sends END to all tasks that read the source. So a client may deliver from many
threads and repeat anything it is not sure of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

import psycopg

from tidegate.dataflow import BarrierKind, Event, Watermark
from tidegate.errors import UnknownRun, UnknownSource
from tidegate.faults import crash_point
from tidegate.store.core.notifications import notify
from tidegate.store.core.queries import queries
from tidegate.store.core.topics import task_topic
from tidegate.store.runs.channels import Sent, channel_ids, find_channels, put
from tidegate.store.runs.chunks import (
    Chunk,
    Delivery,
    Ending,
    SourceFacts,
    check_number,
    decide_delivery,
    decide_ending,
    watermark_after,
)
from tidegate.store.runs.message_codec import as_json, message_id
from tidegate.store.runs.runs import ChannelName, Run, RunState, hold

END_ID = 1
"""The id of the END of every run: fan-ins compare it with other ENDs of the run only."""

NAMED = 20
"""How many missing or surplus chunks are named; a client that forgot a million needs no list."""


def find_chunk(connection: psycopg.Connection, run: Run, source: str, number: int) -> Chunk | None:
    """The chunk that was delivered under this number."""
    return _chunk(_look_for_chunk(connection, run, source, number))


def number_for(connection: psycopg.Connection, run: Run, source: str, sha256: str) -> int:
    """The number of the chunk with this content; the next free number if there is none."""
    given = {"run": run.id, "source": source, "sha256": sha256}
    known, free = connection.execute(_SQL["find_content"].sql, given).fetchone() or (None, 1)
    return int(free if known is None else known)


def record_chunk(
    connection: psycopg.Connection,
    run: Run,
    chunk: Chunk,
    channels: Sequence[ChannelName],
    ends: Sequence[ChannelName],
) -> bool:
    """Put a chunk on its channels, and END on `ends` if it was the last; False when it was there.

    `ends` are the channels into all tasks that read the source, on every shard: watermarks go
    there.
    """
    check_number(chunk.source, chunk.number, least=1)
    with connection.pipeline():
        held = _hold(connection, run, chunk.source)
        known = _look_for_chunk(connection, run, chunk.source, chunk.number)
        ways = find_channels(connection, run, [*channels, *ends])
    facts = held.facts(connection, run, chunk.source)
    before = _chunk(known)
    delivery = decide_delivery(facts, chunk, before.sha256 if before else None)
    if delivery is Delivery.REPEATED:
        return False
    ids = channel_ids(ways.fetchall(), run, [*channels, *ends])
    events = list(_events(run, chunk, channels, ids))
    behind = list(_watermarks(facts, chunk, ends, ids))
    if delivery is Delivery.LAST:
        behind += _ends(run, chunk.source, ends, ids)
    with connection.pipeline():
        _add(connection, run, chunk, is_last=delivery is Delivery.LAST)
        put(connection, [*events, *behind])
        _wake(connection, run, [*channels, *(ends if behind else ())])
    crash_point("chunk.before_commit")
    return True


def begin_batch(connection: psycopg.Connection, run: Run, source: str, number: int) -> None:
    """Remember that the chunk of this number is under way from a stream; END waits for it."""
    asked = {"run": run.id, "source": source, "number": number}
    connection.execute(_SQL["begin_batch"].sql, asked)


def end_source(
    connection: psycopg.Connection,
    run: Run,
    source: str,
    chunks: int | None,
    ends: Sequence[ChannelName],
) -> bool:
    """Say how many chunks a source has, None for those it has; False when that was said before.

    END goes to all channels of `ends` if they are all there, otherwise with the last that is
    missing.
    """
    check_number(source, chunks or 0, least=0)
    with connection.pipeline():
        held = _hold(connection, run, source)
        beyond = _look_beyond(connection, run, source, chunks)
        gaps = look_for_gaps(connection, run, source, chunks)
        ways = find_channels(connection, run, ends)
    facts = held.facts(connection, run, source)
    surplus = tuple(number for (number,) in beyond.fetchall())
    ending = decide_ending(facts, chunks, numbers_in(gaps.fetchall()), surplus)
    if ending is Ending.REPEATED:
        return False
    ids = channel_ids(ways.fetchall(), run, ends)
    with connection.pipeline():
        _declare(connection, facts, chunks, ending)
        if ending is Ending.COMPLETE:
            put(connection, list(_ends(run, source, ends, ids)))
            _wake(connection, run, ends)
    crash_point("chunk.before_commit")
    return True


# ── reading ──


@dataclass(frozen=True, slots=True)
class _Held:
    """A run and a source that were asked for and locked; the answers are on their way."""

    run: psycopg.Cursor[Any]
    source: psycopg.Cursor[Any]

    def facts(self, connection: psycopg.Connection, run: Run, source: str) -> SourceFacts:
        row = self.run.fetchone()
        if row is None:
            raise UnknownRun(run=run.name)
        state, cause = row
        counts = self.source.fetchone()
        if counts is None:
            raise UnknownSource(source=source, known=_source_names(connection, run))
        return SourceFacts(replace(run, state=RunState(state), cause=cause), source, *counts)


def _hold(connection: psycopg.Connection, run: Run, source: str) -> _Held:
    asked = {"run": run.id, "source": source}
    return _Held(hold(connection, run), connection.execute(_SQL["hold_source"].sql, asked))


def _source_names(connection: psycopg.Connection, run: Run) -> str:
    rows = connection.execute(_SQL["source_names"].sql, {"run": run.id})
    return ", ".join(name for (name,) in rows)


def _look_for_chunk(
    connection: psycopg.Connection, run: Run, source: str, number: int
) -> psycopg.Cursor[Any]:
    asked = {"run": run.id, "source": source, "number": number}
    return connection.execute(_SQL["find_chunk"].sql, asked)


def _chunk(answer: psycopg.Cursor[Any]) -> Chunk | None:
    row = answer.fetchone()
    if row is None:
        return None
    source, number, sha256, rows, size, files, *rest = row
    return Chunk(source, number, sha256, rows, size, tuple(files), *rest)


def _look_beyond(
    connection: psycopg.Connection, run: Run, source: str, count: int | None
) -> psycopg.Cursor[Any]:
    asked = {"run": run.id, "source": source, "count": count, "limit": NAMED}
    return connection.execute(_SQL["beyond"].sql, asked)


def look_for_gaps(
    connection: psycopg.Connection, run: Run, source: str, count: int | None
) -> psycopg.Cursor[Any]:
    """Ask for ranges of missing numbers: up to the count, or before the largest that is there."""
    asked = {"run": run.id, "source": source, "count": count, "limit": NAMED}
    return connection.execute(_SQL["gaps"].sql, asked)


def numbers_in(gaps: Iterable[tuple[Any, ...]]) -> tuple[int, ...]:
    """The first numbers in these ranges.

    >>> numbers_in([(2, 3), (7, 7)])
    (2, 3, 7)
    """
    return tuple(islice(chain.from_iterable(range(low, high + 1) for low, high in gaps), NAMED))


# ── writing ──


def _events(
    run: Run, chunk: Chunk, channels: Sequence[ChannelName], ids: dict[ChannelName, int]
) -> Iterator[Sent]:
    event = Event(chunk.batch, run.key)
    for channel in channels:
        id = message_id(run.key, chunk.source, chunk.number, channel.to_task)
        yield Sent(ids[channel], id, event)


def _watermarks(
    facts: SourceFacts, chunk: Chunk, channels: Sequence[ChannelName], ids: dict[ChannelName, int]
) -> Iterator[Sent]:
    time = watermark_after(facts.watermark, chunk)
    if time is None:
        return
    run = facts.run.key
    for channel in channels:
        id = message_id(run, chunk.source, chunk.number, "watermark", channel.to_task)
        yield Sent(ids[channel], id, Watermark(time, run))


def _ends(
    run: Run, source: str, channels: Sequence[ChannelName], ids: dict[ChannelName, int]
) -> Iterator[Sent]:
    end = BarrierKind.END_OF_RUN.with_id(END_ID, run.key)
    for channel in channels:
        yield Sent(ids[channel], message_id(run.key, source, "end", channel.to_task), end)


def _add(connection: psycopg.Connection, run: Run, chunk: Chunk, *, is_last: bool) -> None:
    connection.execute(
        _SQL["add_chunk"].sql,
        {
            "run": run.id,
            "source": chunk.source,
            "number": chunk.number,
            "sha256": chunk.sha256,
            "rows": chunk.rows,
            "bytes": chunk.bytes,
            "files": list(chunk.files),
            "shard": chunk.shard,
            "watermark": chunk.watermark,
            "file_checksums": as_json(chunk.file_checksums),
            "is_last": is_last,
        },
    )


def _declare(
    connection: psycopg.Connection, facts: SourceFacts, chunks: int | None, ending: Ending
) -> None:
    connection.execute(
        _SQL["declare"].sql,
        {
            "run": facts.run.id,
            "source": facts.source,
            "count": facts.delivered if chunks is None else chunks,
            "is_complete": ending is Ending.COMPLETE,
        },
    )


def _wake(connection: psycopg.Connection, run: Run, channels: Iterable[ChannelName]) -> None:
    notify(connection, {task_topic(run.pipeline, channel.to_task) for channel in channels})


_SQL = queries(__name__)
