"""Deliveries: record the chunks of a run's sources, and send END when a source is complete.

A chunk is recorded, counted and put on the channels of its tasks in one transaction, under a lock
on its source. If it advances the source's watermark, that follows on all channels of the source.
The last chunk or the declaration of their number, whichever comes last, sends END to all tasks that
read the source. Clients can deliver from many threads and repeat any call.
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
from tidegate.store.runs.channels import OutgoingMessage, channel_ids, find_channels, put
from tidegate.store.runs.chunks import (
    Chunk,
    ChunkDelivery,
    Ending,
    SourceFacts,
    check_number,
    decide_delivery,
    decide_ending,
    watermark_after,
)
from tidegate.store.runs.message_codec import as_json, message_id
from tidegate.store.runs.runs import ChannelName, RunInfo, RunState, lock

END_ID = 1
"""The id of END in every run: fan-ins compare it only with other ENDs of the same run."""

LISTED = 20
"""How many missing or surplus chunks are listed."""


def find_chunk(
    connection: psycopg.Connection, run: RunInfo, source: str, number: int
) -> Chunk | None:
    """The chunk with this number; None before it is delivered."""
    return _chunk(_select_chunk(connection, run, source, number))


def next_number(connection: psycopg.Connection, run: RunInfo, source: str) -> int:
    """The number after the last delivered chunk of a source."""
    parameters = {"run": run.id, "source": source}
    (number,) = connection.execute(_SQL["next_number"].sql, parameters).fetchone() or (1,)
    return int(number)


def record_chunk(
    connection: psycopg.Connection,
    run: RunInfo,
    chunk: Chunk,
    channels: Sequence[ChannelName],
    ends: Sequence[ChannelName],
) -> bool:
    """Put a chunk on its channels, and END on `ends` after the last one; False for a repetition.

    `ends` are the channels into all tasks that read the source, on every shard; watermarks go
    there too.
    """
    check_number(chunk.source, chunk.number, least=1)
    with connection.pipeline():
        locked = _lock(connection, run, chunk.source)
        known = _select_chunk(connection, run, chunk.source, chunk.number)
        channel_rows = find_channels(connection, run, [*channels, *ends])
    facts = locked.facts(connection, run, chunk.source)
    before = _chunk(known)
    delivery = decide_delivery(facts, chunk, before.sha256 if before else None)
    if delivery is ChunkDelivery.REPEATED:
        return False
    ids = channel_ids(channel_rows.fetchall(), run, [*channels, *ends])
    events = list(_events(run, chunk, channels, ids))
    behind = list(_watermarks(facts, chunk, ends, ids))
    if delivery is ChunkDelivery.LAST:
        behind += _ends(run, chunk.source, ends, ids)
    with connection.pipeline():
        _add(connection, run, chunk, is_last=delivery is ChunkDelivery.LAST)
        put(connection, [*events, *behind])
        _notify(connection, run, [*channels, *(ends if behind else ())])
    crash_point("chunk.before_commit")
    return True


def begin_batch(connection: psycopg.Connection, run: RunInfo, source: str, number: int) -> None:
    """Record that a batch of a stream was started; END waits for its chunk."""
    parameters = {"run": run.id, "source": source, "number": number}
    connection.execute(_SQL["begin_batch"].sql, parameters)


def end_source(
    connection: psycopg.Connection,
    run: RunInfo,
    source: str,
    chunks: int | None,
    ends: Sequence[ChannelName],
) -> bool:
    """Declare the number of chunks of a source, None for those delivered; False for a repetition.

    END is sent to `ends` now if all chunks are delivered, otherwise after the last one.
    """
    check_number(source, chunks or 0, least=0)
    with connection.pipeline():
        locked = _lock(connection, run, source)
        beyond = _select_beyond(connection, run, source, chunks)
        gaps = select_gaps(connection, run, source, chunks)
        channel_rows = find_channels(connection, run, ends)
    facts = locked.facts(connection, run, source)
    surplus = tuple(number for (number,) in beyond.fetchall())
    ending = decide_ending(facts, chunks, numbers_in(gaps.fetchall()), surplus)
    if ending is Ending.REPEATED:
        return False
    ids = channel_ids(channel_rows.fetchall(), run, ends)
    with connection.pipeline():
        _declare(connection, facts, chunks, ending)
        if ending is Ending.COMPLETE:
            put(connection, list(_ends(run, source, ends, ids)))
            _notify(connection, run, ends)
    crash_point("chunk.before_commit")
    return True


# ── reading ──


@dataclass(frozen=True, slots=True)
class _LockedSource:
    """The results of the statements that lock a run and a source; read after the pipeline."""

    run: psycopg.Cursor[Any]
    source: psycopg.Cursor[Any]

    def facts(self, connection: psycopg.Connection, run: RunInfo, source: str) -> SourceFacts:
        row = self.run.fetchone()
        if row is None:
            raise UnknownRun(run=run.name)
        state, cause = row
        counts = self.source.fetchone()
        if counts is None:
            raise UnknownSource(source=source, known=_source_names(connection, run))
        return SourceFacts(replace(run, state=RunState(state), cause=cause), source, *counts)


def _lock(connection: psycopg.Connection, run: RunInfo, source: str) -> _LockedSource:
    parameters = {"run": run.id, "source": source}
    return _LockedSource(
        lock(connection, run), connection.execute(_SQL["lock_source"].sql, parameters)
    )


def _source_names(connection: psycopg.Connection, run: RunInfo) -> str:
    rows = connection.execute(_SQL["source_names"].sql, {"run": run.id})
    return ", ".join(name for (name,) in rows)


def _select_chunk(
    connection: psycopg.Connection, run: RunInfo, source: str, number: int
) -> psycopg.Cursor[Any]:
    parameters = {"run": run.id, "source": source, "number": number}
    return connection.execute(_SQL["find_chunk"].sql, parameters)


def _chunk(result: psycopg.Cursor[Any]) -> Chunk | None:
    row = result.fetchone()
    if row is None:
        return None
    source, number, sha256, rows, size, files, *rest = row
    return Chunk(source, number, sha256, rows, size, tuple(files), *rest)


def _select_beyond(
    connection: psycopg.Connection, run: RunInfo, source: str, count: int | None
) -> psycopg.Cursor[Any]:
    parameters = {"run": run.id, "source": source, "count": count, "limit": LISTED}
    return connection.execute(_SQL["beyond"].sql, parameters)


def select_gaps(
    connection: psycopg.Connection, run: RunInfo, source: str, count: int | None
) -> psycopg.Cursor[Any]:
    """Select the ranges of missing numbers: up to the count, or before the largest number."""
    parameters = {"run": run.id, "source": source, "count": count, "limit": LISTED}
    return connection.execute(_SQL["gaps"].sql, parameters)


def numbers_in(gaps: Iterable[tuple[Any, ...]]) -> tuple[int, ...]:
    """The first numbers in these ranges.

    >>> numbers_in([(2, 3), (7, 7)])
    (2, 3, 7)
    """
    return tuple(islice(chain.from_iterable(range(low, high + 1) for low, high in gaps), LISTED))


# ── writing ──


def _events(
    run: RunInfo, chunk: Chunk, channels: Sequence[ChannelName], ids: dict[ChannelName, int]
) -> Iterator[OutgoingMessage]:
    event = Event(chunk.batch, run.key)
    for channel in channels:
        id = message_id(run.key, chunk.source, chunk.number, channel.to_task)
        yield OutgoingMessage(ids[channel], id, event)


def _watermarks(
    facts: SourceFacts, chunk: Chunk, channels: Sequence[ChannelName], ids: dict[ChannelName, int]
) -> Iterator[OutgoingMessage]:
    time = watermark_after(facts.watermark, chunk)
    if time is None:
        return
    run = facts.run.key
    for channel in channels:
        id = message_id(run, chunk.source, chunk.number, "watermark", channel.to_task)
        yield OutgoingMessage(ids[channel], id, Watermark(time, run))


def _ends(
    run: RunInfo, source: str, channels: Sequence[ChannelName], ids: dict[ChannelName, int]
) -> Iterator[OutgoingMessage]:
    end = BarrierKind.END_OF_RUN.with_id(END_ID, run.key)
    for channel in channels:
        yield OutgoingMessage(
            ids[channel], message_id(run.key, source, "end", channel.to_task), end
        )


def _add(connection: psycopg.Connection, run: RunInfo, chunk: Chunk, *, is_last: bool) -> None:
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


def _notify(connection: psycopg.Connection, run: RunInfo, channels: Iterable[ChannelName]) -> None:
    notify(connection, {task_topic(run.pipeline, channel.to_task) for channel in channels})


_SQL = queries(__name__)
