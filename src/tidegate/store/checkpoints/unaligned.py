"""Unaligned checkpoints: they include the messages in flight instead of waiting for barriers.

Channels and cursors are in PostgreSQL. While a run is locked exclusively, for some milliseconds,
its cursors and the unread messages after them are a consistent point of the run. A task that has
forwarded the barrier is at that barrier, with the state it stored; every other task is where its
last step left it, and its unread messages are stored as in flight. A source without a barrier is at
its last chunk.

From then on the barriers of this checkpoint are ignored, like those of an aborted one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from tidegate.dataflow import StreamMessage
from tidegate.faults import crash_point
from tidegate.store.checkpoints.checkpoints import Acknowledgement, FileChecksum
from tidegate.store.core.notifications import notify
from tidegate.store.core.queries import queries
from tidegate.store.core.topics import monitor_topic
from tidegate.store.runs.message_codec import as_json, decode
from tidegate.store.runs.runs import ChannelName, RunInfo, closing_topics


@dataclass(frozen=True, slots=True)
class InFlightMessage:
    """A message that was in flight at a checkpoint."""

    channel: ChannelName
    position: int
    message: StreamMessage


def unalign(connection: psycopg.Connection, run: RunInfo, number: int) -> bool:
    """Make a pending checkpoint unaligned; False when it is settled or unaligned already."""
    parameters = {"run": run.id, "number": number}
    row = connection.execute(_SQL["lock_run"].sql, parameters).fetchone()
    if not (row and row[0]) or not connection.execute(_SQL["mark"].sql, parameters).rowcount:
        return False
    for name in ("record", "mark_sources", "store_in_flight", "acknowledge_all"):
        connection.execute(_SQL[name].sql, parameters)
    notify(connection, {*closing_topics(connection, [run.id]), monitor_topic(run.pipeline)})
    crash_point("checkpoint.unalign.before_commit")
    return True


def without_checksum(
    connection: psycopg.Connection, run: RunInfo, number: int
) -> dict[int, list[str]]:
    """The files of in-flight messages that have no checksums yet, by position."""
    parameters = {"run": run.id, "number": number}
    return dict(connection.execute(_SQL["without_checksum"].sql, parameters).fetchall())


def checksum(
    connection: psycopg.Connection,
    run: RunInfo,
    number: int,
    checksums: Mapping[int, Sequence[FileChecksum]],
) -> None:
    """Store the checksums of files of in-flight messages."""
    given = as_json(
        [{"position": position, "files": files} for position, files in checksums.items()]
    )
    connection.execute(_SQL["checksum"].sql, {"run": run.id, "number": number, "given": given})


def in_flight(connection: psycopg.Connection, run: RunInfo, number: int) -> list[InFlightMessage]:
    """The messages in flight at a checkpoint, in the order of their channels."""
    rows = connection.execute(_SQL["in_flight"].sql, {"run": run.id, "number": number})
    return [
        InFlightMessage(ChannelName(*way), position, decode(kind, payload, run.key))
        for *way, position, kind, payload in rows
    ]


def select_overtaken(
    connection: psycopg.Connection, given: Collection[Acknowledgement]
) -> psycopg.Cursor[Any] | None:
    """Select the runs whose acknowledged checkpoint became unaligned; None without state to add.

    Such state comes too late: the messages it was computed from are stored as in flight.
    """
    adding = [it for it in given if it.state or it.compacted]
    if not adding:
        return None
    parameters = {"runs": [it.run for it in adding], "numbers": [it.number for it in adding]}
    return connection.execute(_SQL["overtaken"].sql, parameters)


_SQL = queries(__name__)
