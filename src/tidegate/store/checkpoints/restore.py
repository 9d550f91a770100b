"""Restore: a run continues from one of its checkpoints, as another incarnation of its name.

The new incarnation has the state of the checkpoint, its in-flight messages on the channels, and the
chunks delivered after it on the channels of the sources. The old run is closed, so that late writes
for it change nothing. A task that had ended before the checkpoint stays ended: its END is put on
its outgoing channels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import psycopg

from tidegate.checkpoint import CheckpointState
from tidegate.dataflow import BarrierKind, Event, StreamMessage, Watermark
from tidegate.errors import UnknownCheckpoint, listed
from tidegate.faults import crash_point
from tidegate.store.checkpoints.checkpoints import (
    FileChecksum,
    checkpoints_of,
    committed_checkpoint,
)
from tidegate.store.checkpoints.unaligned import in_flight
from tidegate.store.core.notifications import notify
from tidegate.store.core.queries import queries
from tidegate.store.runs.channels import OutgoingMessage, channel_ids, find_channels, put
from tidegate.store.runs.chunks import Chunk, watermark_after
from tidegate.store.runs.deliveries import END_ID
from tidegate.store.runs.message_codec import message_id
from tidegate.store.runs.runs import (
    ChannelName,
    RunInfo,
    RunState,
    begin_run,
    close_run,
    closing_topics,
)


@dataclass(frozen=True, slots=True)
class ChannelGraph:
    """The channels of a plan, and those of them that come from sources."""

    plan: str
    channels: Sequence[ChannelName]
    sources: Mapping[str, Sequence[Sequence[ChannelName]]]


def file_checksums(connection: psycopg.Connection, run: RunInfo, number: int) -> list[FileChecksum]:
    """The checksums of the files of a checkpoint."""
    rows = connection.execute(_SQL["checksums"].sql, {"run": run.id, "number": number})
    return [FileChecksum(*row) for row in rows]


def files_after(
    connection: psycopg.Connection, run: RunInfo, number: int
) -> dict[str, FileChecksum | None]:
    """The files of the chunks after a checkpoint; None for a file without a checksum."""
    rows = connection.execute(_SQL["files_after"].sql, {"run": run.id, "number": number})
    return {
        file: FileChecksum(file, size, sha256) if sha256 else None for file, sha256, size in rows
    }


def restore(
    connection: psycopg.Connection, earlier: RunInfo, number: int, graph: ChannelGraph
) -> RunInfo:
    """Restore a run from a checkpoint under the same name; the run is closed if it is open.

    Raises `UnknownCheckpoint` when the checkpoint does not exist or was retired.
    """
    _lock_checkpoint(connection, earlier, number)
    close_run(connection, earlier, RunState.CANCELLED, f"it was restored to checkpoint {number}")
    run = begin_run(
        connection,
        earlier.pipeline,
        earlier.name,
        graph.channels,
        sources=tuple(graph.sources),
        plan=graph.plan,
    )
    parameters = {"run": earlier.id, "number": number}
    tasks = [task for (task,) in connection.execute(_SQL["acknowledged_by"].sql, parameters)]
    _copy(connection, run, earlier, number, tasks)
    sent = [*_replayed(connection, run, number, graph), *_ends(connection, run, graph, tasks)]
    put(connection, _on_channels(connection, run, graph, sent))
    connection.execute(_SQL["pass_over"].sql, {"run": run.id, "tasks": tasks})
    notify(connection, closing_topics(connection, [run.id]))
    crash_point("restore.before_commit")
    return run


def _lock_checkpoint(connection: psycopg.Connection, run: RunInfo, number: int) -> None:
    """Raise `UnknownCheckpoint` unless it is committed; locked until the commit."""
    if committed_checkpoint(connection, run, number) is None:
        committed = CheckpointState.COMMITTED
        known = [str(it.number) for it in checkpoints_of(connection, run) if it.state is committed]
        raise UnknownCheckpoint(run.name, f"checkpoint {number}", listed(known))


def successor_of(connection: psycopg.Connection, run: RunInfo) -> RunInfo | None:
    """The latest run that was restored from this one, if any."""
    row = connection.execute(_SQL["successor"].sql, {"run": run.id}).fetchone()
    return RunInfo.from_row(*row) if row else None


def _copy(
    connection: psycopg.Connection,
    run: RunInfo,
    earlier: RunInfo,
    number: int,
    tasks: Collection[str],
) -> None:
    parameters = {"run": run.id, "earlier": earlier.id, "number": number, "tasks": list(tasks)}
    for name in (
        "inherit",
        "copy_sources",
        "copy_chunks",
        "copy_checkpoints",
        "copy_acknowledgements",
        "copy_outputs",
        "copy_states",
        "copy_in_flight",
        "copy_releases",
    ):
        connection.execute(_SQL[name].sql, parameters)


_Message = tuple[ChannelName, tuple[str | int, ...], StreamMessage | None]
"""A channel, the cause from which the message id is derived, and the message; None is END."""


def _replayed(
    connection: psycopg.Connection, run: RunInfo, number: int, graph: ChannelGraph
) -> Iterator[_Message]:
    """In-flight messages, the watermarks of sources, and the chunks after the checkpoint."""
    for it in in_flight(connection, run, number):
        yield (
            it.channel,
            (it.channel.from_task, it.channel.input, "in flight", it.position),
            it.message,
        )
    parameters = {"run": run.id, "number": number}
    times: dict[str, int] = dict(
        connection.execute(_SQL["watermarks_at"].sql, parameters).fetchall()
    )
    for source, time in times.items():
        yield from _watermarks(run, graph, source, time, "checkpoint")
    for source, at, sha256, rows, size, files, *rest in connection.execute(
        _SQL["chunks_after"].sql, parameters
    ).fetchall():
        chunk = Chunk(source, at, sha256, rows, size, tuple(files), *rest)
        for channels in graph.sources[source]:
            yield channels[chunk.shard], (source, at), Event(chunk.batch, run.key)
        moved = watermark_after(times.get(source), chunk)
        if moved is not None:
            times[source] = moved
            yield from _watermarks(run, graph, source, moved, at)


def _watermarks(
    run: RunInfo, graph: ChannelGraph, source: str, time: int, since: str | int
) -> Iterator[_Message]:
    """A watermark on all channels of a source."""
    for channels in graph.sources[source]:
        for channel in channels:
            yield channel, (source, since, "watermark"), Watermark(time, run.key)


def _ends(
    connection: psycopg.Connection, run: RunInfo, graph: ChannelGraph, tasks: Collection[str]
) -> Iterator[_Message]:
    """END of sources that have ended, and of tasks that had ended before the checkpoint."""
    for (source,) in connection.execute(_SQL["ended_sources"].sql, {"run": run.id}).fetchall():
        for channels in graph.sources[source]:
            for channel in channels:
                yield channel, (source, "end"), None
    heads = {
        channel.from_task
        for each in graph.sources.values()
        for channels in each
        for channel in channels
    }
    for channel in graph.channels:
        if channel.from_task not in heads and channel.from_task not in tasks:
            yield channel, (channel.from_task, channel.input, "end"), None


def _on_channels(
    connection: psycopg.Connection, run: RunInfo, graph: ChannelGraph, messages: Sequence[_Message]
) -> list[OutgoingMessage]:
    ids = channel_ids(
        find_channels(connection, run, graph.channels).fetchall(), run, graph.channels
    )
    end = BarrierKind.END_OF_RUN.with_id(END_ID, run.key)
    return [
        OutgoingMessage(ids[channel], message_id(run.key, *cause, channel.to_task), message or end)
        for channel, cause, message in messages
    ]


_SQL = queries(__name__)
