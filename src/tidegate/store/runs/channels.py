"""Durable channels: messages between tasks, per run, in PostgreSQL.

A channel is identified by its sending task, its receiving task and that task's input. Its messages
are numbered densely from 1; END carries the number of messages before it. The cursor is the last
processed message; `step_commit` advances it. The id of a message is derived from its cause, so that
a repeated append is detected.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec
import psycopg

from tidegate.dataflow import Barrier, StreamMessage
from tidegate.errors import ChannelConflict
from tidegate.store.core.notifications import notify
from tidegate.store.core.queries import queries
from tidegate.store.core.topics import task_topic
from tidegate.store.runs.message_codec import as_json, decode, encode
from tidegate.store.runs.runs import ChannelName, RunInfo, lock_open

FETCH = 256
"""Largest number of messages fetched from a channel at a time."""

FETCH_TOTAL = 4096
"""Largest number of messages fetched from all channels together at a time."""


@dataclass(frozen=True, slots=True)
class ChannelState:
    """A channel of a run and the position of its receiver."""

    id: int
    name: ChannelName
    cursor: int


@dataclass(frozen=True, slots=True)
class UnreadMessage:
    """A message that was not processed yet."""

    run: RunInfo
    channel: int
    seq: int
    message: StreamMessage


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to append, with the id derived from its cause."""

    channel: int
    id: UUID
    message: StreamMessage


# ── reading ──


def channels_of(connection: psycopg.Connection, run: RunInfo, task: str) -> list[ChannelState]:
    """The channels into and out of a task."""
    rows = connection.execute(_SQL["channels_of"].sql, {"run": run.id, "task": task})
    return [ChannelState(id, ChannelName(*name), cursor) for id, *name, cursor in rows]


def unread(
    connection: psycopg.Connection,
    pipeline: str,
    task: str,
    fetched: dict[int, int],
    limit: int = FETCH,
    total: int = FETCH_TOTAL,
) -> list[UnreadMessage]:
    """The next messages for a task in all open runs, channel by channel in order.

    `fetched` maps channels to their last fetched message; other channels start after their cursor.
    With more than `total` messages, each channel gets an equal share.
    """
    rows = connection.execute(
        _SQL["unread"].sql,
        {
            "pipeline": pipeline,
            "task": task,
            "channels": list(fetched.keys()),
            "fetched": list(fetched.values()),
            "limit": limit,
            "total": total,
        },
    )
    runs: dict[object, RunInfo] = {}
    return [_unread(runs, *row) for row in rows]


def _unread(runs: dict[object, RunInfo], *row: object) -> UnreadMessage:
    id, *_, channel, seq, kind, payload = row
    run = runs.get(id) or runs.setdefault(id, RunInfo.from_row(*row[:-4]))
    assert isinstance(channel, int)
    assert isinstance(seq, int)
    return UnreadMessage(run, channel, seq, decode(str(kind), str(payload), run.key))


def last_watermarks(connection: psycopg.Connection, positions: dict[int, int]) -> dict[int, int]:
    """The last watermark of each channel up to a position; channels without one are missing."""
    rows = connection.execute(
        _SQL["last_watermarks"].sql,
        {"channels": list(positions.keys()), "positions": list(positions.values())},
    )
    return dict(rows.fetchall())


# ── writing ──


def append(
    connection: psycopg.Connection,
    run: RunInfo,
    channel: ChannelName,
    messages: Sequence[tuple[UUID, StreamMessage]],
) -> int:
    """Append messages to a channel from outside of any task; returns how many were new."""
    lock_open(connection, run, channel.to_task)
    channels = channel_ids(find_channels(connection, run, [channel]).fetchall(), run, [channel])
    row = put(
        connection, [OutgoingMessage(channels[channel], id, message) for id, message in messages]
    ).fetchone()
    fresh = int(row[1]) if row else 0
    if fresh:
        notify(connection, [task_topic(run.pipeline, channel.to_task)])
    return fresh


def find_channels(
    connection: psycopg.Connection, run: RunInfo, names: Sequence[ChannelName]
) -> psycopg.Cursor[Any]:
    """Find and lock channels; `channel_ids` evaluates the rows."""
    return connection.execute(
        _SQL["find_channels"].sql,
        {
            "run": run.id,
            "from_tasks": [name.from_task for name in names],
            "to_tasks": [name.to_task for name in names],
            "inputs": [name.input for name in names],
        },
    )


def channel_ids(
    rows: Iterable[tuple[Any, ...]], run: RunInfo, names: Sequence[ChannelName]
) -> dict[ChannelName, int]:
    """The id of every requested channel."""
    found = {ChannelName(*name): id for id, *name in rows}
    for name in names:
        if name not in found:
            raise ChannelConflict(task=name.to_task, reason=f"run {run.key} has no channel {name}")
    return found


def put(connection: psycopg.Connection, sent: Sequence[OutgoingMessage]) -> psycopg.Cursor[Any]:
    """Append messages to channels of open runs; END gets the number of messages before it.

    Known messages are skipped. The result is one row: how many messages were for open runs, and
    how many of them were new.
    """
    rows = [_row(position, each) for position, each in enumerate(sent)]
    return connection.execute(_SQL["append"].sql, {"messages": as_json(rows)})


def _row(position: int, sent: OutgoingMessage) -> dict[str, object]:
    kind, payload = encode(sent.message)
    return {
        "channel_id": sent.channel,
        "id": sent.id,
        "kind": kind,
        "payload": msgspec.Raw(payload.encode()),
        "is_end": _is_end(sent.message),
        "position": position,
    }


def _is_end(message: StreamMessage) -> bool:
    return isinstance(message, Barrier) and message.is_end


_SQL = queries(__name__)
