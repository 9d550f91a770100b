"""Durable channels: messages between tasks, per run, in PostgreSQL.

A channel is known by the task it comes from, the task it leads to, and by which of that task's
inputs. Its messages are numbered densely from 1; an END says how many came before it. A cursor
stands behind the last message that has had its effect; `steps` moves it. An id is made from what
caused a message, so that a channel sees when it is given the same one again.
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
from tidegate.store.runs.runs import ChannelName, Run, hold_open

FETCH = 256
"""How many messages of a channel are fetched at a time, at most."""

FETCH_TOTAL = 4096
"""How many messages are fetched at a time from all channels together."""


@dataclass(frozen=True, slots=True)
class ChannelState:
    """A channel of a run and how far its receiver has come."""

    id: int
    name: ChannelName
    cursor: int


@dataclass(frozen=True, slots=True)
class Unread:
    """A message that waits on a channel."""

    run: Run
    channel: int
    seq: int
    message: StreamMessage


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that goes out, under the id its cause gives it."""

    channel: int
    id: UUID
    message: StreamMessage


# ── reading ──


def channels_of(connection: psycopg.Connection, run: Run, task: str) -> list[ChannelState]:
    """The channels into and out of a task."""
    rows = connection.execute(_SQL["channels_of"].sql, {"run": run.id, "task": task})
    return [ChannelState(id, ChannelName(*way), cursor) for id, *way, cursor in rows]


def unread(
    connection: psycopg.Connection,
    pipeline: str,
    task: str,
    fetched: dict[int, int],
    limit: int = FETCH,
    total: int = FETCH_TOTAL,
) -> list[Unread]:
    """The next messages for a task in all open runs, channel by channel in order.

    `fetched` says for channels up to where messages are already at hand; others start behind
    their cursor. With more news than `total`, every channel gets its fair part of it.
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
    runs: dict[object, Run] = {}
    return [_unread(runs, *row) for row in rows]


def _unread(runs: dict[object, Run], *row: object) -> Unread:
    id, *_, channel, seq, kind, payload = row
    run = runs.get(id) or runs.setdefault(id, Run.from_row(*row[:-4]))
    assert isinstance(channel, int)
    assert isinstance(seq, int)
    return Unread(run, channel, seq, decode(str(kind), str(payload), run.key))


def last_watermarks(connection: psycopg.Connection, positions: dict[int, int]) -> dict[int, int]:
    """For each channel that has one, the last watermark up to a position."""
    rows = connection.execute(
        _SQL["last_watermarks"].sql,
        {"channels": list(positions.keys()), "positions": list(positions.values())},
    )
    return dict(rows.fetchall())


# ── writing ──


def append(
    connection: psycopg.Connection,
    run: Run,
    channel: ChannelName,
    messages: Sequence[tuple[UUID, StreamMessage]],
) -> int:
    """Put messages on a channel from outside of any task; those it has already are skipped.

    Answers how many were not there before.
    """
    hold_open(connection, run, channel.to_task)
    channels = channel_ids(find_channels(connection, run, [channel]).fetchall(), run, [channel])
    row = put(
        connection, [Sent(channels[channel], id, message) for id, message in messages]
    ).fetchone()
    fresh = int(row[1]) if row else 0
    if fresh:
        notify(connection, [task_topic(run.pipeline, channel.to_task)])
    return fresh


def find_channels(
    connection: psycopg.Connection, run: Run, names: Sequence[ChannelName]
) -> psycopg.Cursor[Any]:
    """Look up channels and lock them; `channel_ids` understands the rows."""
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
    rows: Iterable[tuple[Any, ...]], run: Run, names: Sequence[ChannelName]
) -> dict[ChannelName, int]:
    """The id of every channel that was asked for."""
    found = {ChannelName(*way): id for id, *way in rows}
    for name in names:
        if name not in found:
            raise ChannelConflict(task=name.to_task, reason=f"run {run.key} has no channel {name}")
    return found


def put(connection: psycopg.Connection, sent: Sequence[Sent]) -> psycopg.Cursor[Any]:
    """Append messages to channels of open runs, an END with how many came before it on its channel.

    Messages that are there already are skipped. The answer is one row: how many were for open
    runs, and how many were put.
    """
    rows = [_row(position, each) for position, each in enumerate(sent)]
    return connection.execute(_SQL["append"].sql, {"messages": as_json(rows)})


def _row(position: int, sent: Sent) -> dict[str, object]:
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
