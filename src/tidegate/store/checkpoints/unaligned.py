"""Checkpoints that wait no longer: what is on its way belongs to them.

Channels are in PostgreSQL, and so is how far each has been read. So where a barrier has not come
yet nobody has to wait for it: while a run is held alone, for some milliseconds, its cursors and
what waits behind them are a point of the run as good as any. A task that has passed the barrier on
stands there, with what it kept; every other one stands where its last step left it, and what it has
not read is kept as in flight. A source that had no barrier is cut behind its last chunk, whether or
not it would ever have injected one.

From there on the barriers of this checkpoint mean nothing any more, just as those of one that was
given up.
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
    """A message that was on its way."""

    channel: ChannelName
    position: int
    message: StreamMessage


def unalign(connection: psycopg.Connection, run: RunInfo, number: int) -> bool:
    """Let a checkpoint wait no longer; False when it is over, or waits for nobody already."""
    asked = {"run": run.id, "number": number}
    is_open = connection.execute(_SQL["hold_alone"].sql, asked).fetchone()
    if not (is_open and is_open[0]) or not connection.execute(_SQL["mark"].sql, asked).rowcount:
        return False
    for name in ("note", "checkpoint_sources", "keep_in_flight", "pass_by"):
        connection.execute(_SQL[name].sql, asked)
    notify(connection, {*closing_topics(connection, [run.id]), monitor_topic(run.pipeline)})
    crash_point("checkpoint.unalign.before_commit")
    return True


def without_checksum(
    connection: psycopg.Connection, run: RunInfo, number: int
) -> dict[int, list[str]]:
    """The files of what was on its way, by position, that nobody has sealed yet."""
    asked = {"run": run.id, "number": number}
    return dict(connection.execute(_SQL["without_checksum"].sql, asked).fetchall())


def checksum(
    connection: psycopg.Connection,
    run: RunInfo,
    number: int,
    checksums: Mapping[int, Sequence[FileChecksum]],
) -> None:
    """Remember how the files of what was on its way have to be found."""
    given = as_json(
        [{"position": position, "files": files} for position, files in checksums.items()]
    )
    connection.execute(_SQL["checksum"].sql, {"run": run.id, "number": number, "given": given})


def in_flight(connection: psycopg.Connection, run: RunInfo, number: int) -> list[InFlightMessage]:
    """What was on its way, in the order in which each channel had it; messages are of this run."""
    rows = connection.execute(_SQL["in_flight"].sql, {"run": run.id, "number": number})
    return [
        InFlightMessage(ChannelName(*way), position, decode(kind, payload, run.key))
        for *way, position, kind, payload in rows
    ]


def ask_for_late(
    connection: psycopg.Connection, given: Collection[Acknowledgement]
) -> psycopg.Cursor[Any] | None:
    """Ask which runs wait no longer for what is acknowledged here; None where it cannot matter.

    Whoever keeps something for such a checkpoint comes too late: what it has read was on its way.
    """
    keeping = [it for it in given if it.state or it.compacted]
    if not keeping:
        return None
    asked = {"runs": [it.run for it in keeping], "numbers": [it.number for it in keeping]}
    return connection.execute(_SQL["late"].sql, asked)


_SQL = queries(__name__)
