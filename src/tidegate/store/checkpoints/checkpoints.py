"""Checkpoints in PostgreSQL: triggered, injected, acknowledged, and committed by one row.

A task's state (`StateEntry`) is written by the step that forwards the barrier, together with its
cursors. A restarted task therefore reads its state here and the messages after the barrier from its
channels. A state entry belongs to every checkpoint from the one that added it: the cost of a
checkpoint is what has changed since the last one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any
from uuid import UUID

import msgspec
import psycopg

from tidegate.checkpoint import (
    CheckpointFacts,
    Checkpoints,
    CheckpointState,
    PendingCheckpoint,
    WaitingTask,
)
from tidegate.dataflow import Barrier, CheckpointBarrier, Payload, SinkResult
from tidegate.errors import RunEnded
from tidegate.faults import crash_point
from tidegate.store.core.notifications import notify
from tidegate.store.core.queries import queries
from tidegate.store.core.text import storable
from tidegate.store.core.topics import checkpoint_topic, monitor_topic, run_topic, task_topic
from tidegate.store.runs.channels import OutgoingMessage, channel_ids, find_channels, put
from tidegate.store.runs.message_codec import as_json, decode_state, message_id
from tidegate.store.runs.runs import ChannelName, RunInfo, closing_topics, lock_open


@dataclass(frozen=True, slots=True)
class FileChecksum:
    """The expected size and SHA-256 of a file."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class StateEntry:
    """An entry of a task's state: its input, its payload, and the files that it references."""

    input: int
    payload: Payload
    files: tuple[FileChecksum, ...] = ()


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """A task has forwarded a barrier: the state it adds, and the sink output up to here."""

    run: int
    number: int
    task: str
    state: tuple[StateEntry, ...] = ()
    outputs: tuple[StateEntry, ...] = ()
    compacted: tuple[tuple[int, int], ...] = ()
    """By input the checkpoint up to which `state` replaces earlier entries."""
    waited: float = 0.0
    """Seconds from the first to the last copy of the barrier."""
    last: str = ""
    """The upstream task that delivered the last copy."""

    @property
    def bytes(self) -> int:
        """Size of the added files."""
        return sum(file.bytes for each in (*self.state, *self.outputs) for file in each.files)


@dataclass(frozen=True, slots=True)
class StateUpdate:
    """State added outside of a checkpoint, and the cursor from which it was computed."""

    run: int
    task: str
    channel: int
    origin: int
    """Expected position of the channel's cursor; at another one the update was applied before."""
    state: tuple[StateEntry, ...]


@dataclass(frozen=True, slots=True)
class PendingBarrier:
    """A barrier that a source of a run has to inject."""

    run: RunInfo
    source: str
    number: int
    epoch: int
    is_unpublished: bool = False


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint of a run, with its durations."""

    number: int
    id: UUID
    epoch: int
    state: CheckpointState
    triggered_at: datetime
    seconds: float
    waited: float
    bytes: int
    slowest: str | None
    reason: str | None
    offender: str | None
    is_published: bool = True
    """Whether sinks show it once it is committed; otherwise it stores state only."""
    is_aligned: bool = True
    """Whether all barriers were aligned; otherwise it includes in-flight messages."""
    up_to: int | None = None
    """The least watermark of its open sources, in milliseconds since 1970, if there is any."""


@dataclass(frozen=True, slots=True)
class CommittedCheckpoint:
    """A committed checkpoint."""

    number: int
    manifest: Mapping[str, Any]


# ── triggering ──


def set_checkpoints(connection: psycopg.Connection, run: RunInfo, checkpoints: Checkpoints) -> None:
    """Set the checkpoint configuration of a run."""
    connection.execute(
        _SQL["set_checkpoints"].sql, {"run": run.id, "checkpoints": as_json(checkpoints)}
    )
    notify(connection, [monitor_topic(run.pipeline)])


def trigger(
    connection: psycopg.Connection,
    run: RunInfo,
    id: UUID,
    *,
    unpublished: bool = False,
    alignment_timeout: float | None = None,
) -> int | None:
    """Trigger a checkpoint: its number, or None while one is pending or all sources have ended.

    An unpublished one stores state only. After the alignment timeout, in seconds, it becomes
    unaligned. Raises `RunEnded` when the run is closed.
    """
    lock_open(connection, run, "*")
    parameters = {
        "run": run.id,
        "id": id,
        "unpublished": unpublished,
        "alignment_timeout": alignment_timeout,
    }
    row = connection.execute(_SQL["trigger"].sql, parameters).fetchone()
    if row is None:
        return None
    notify(connection, [checkpoint_topic(run.pipeline), monitor_topic(run.pipeline)])
    crash_point("checkpoint.trigger.before_commit")
    return int(row[0])


def pending_barriers(connection: psycopg.Connection, pipeline: str) -> list[PendingBarrier]:
    """The barriers that sources have to inject."""
    rows = connection.execute(_SQL["pending_barriers"].sql, {"pipeline": pipeline})
    return [PendingBarrier(RunInfo.from_row(*row[:6]), *row[6:]) for row in rows]


def inject(
    connection: psycopg.Connection,
    run: RunInfo,
    source: str,
    barrier: CheckpointBarrier,
    channels: Sequence[ChannelName],
) -> bool:
    """Put a barrier on the channels of a source; False when it is there or no longer pending."""
    try:
        lock_open(connection, run, source)
    except RunEnded:
        return False
    number = barrier.checkpoint_id
    parameters = {"run": run.id, "source": source, "number": number}
    row = connection.execute(_SQL["lock_injection"].sql, parameters).fetchone()
    if row is None or not row[0]:
        return False
    message = Barrier.of_checkpoint(barrier, run.key)
    ids = channel_ids(find_channels(connection, run, channels).fetchall(), run, channels)
    put(
        connection,
        [
            OutgoingMessage(
                ids[to], message_id(run.key, source, "checkpoint", number, to.to_task), message
            )
            for to in channels
        ],
    )
    connection.execute(_SQL["record_injected"].sql, parameters)
    topics = {task_topic(run.pipeline, channel.to_task) for channel in channels}
    notify(connection, {*topics, monitor_topic(run.pipeline)})
    crash_point("checkpoint.inject.before_commit")
    return True


# ── acknowledging: part of a step ──


def acknowledge(connection: psycopg.Connection, given: Collection[Acknowledgement]) -> None:
    """Write acknowledgements with the state and sink output of tasks."""
    rows = [
        {"run_id": it.run, "number": it.number, "task": it.task, "alignment_seconds": it.waited,
         "last_upstream": it.last, "bytes": it.bytes}
        for it in given
    ]  # fmt: skip
    connection.execute(_SQL["acknowledge"].sql, {"given": as_json(rows)})
    changes = (
        ("compact", _compacted(given)),
        ("add_entries", _entries(given)),
        ("stage", _outputs(given)),
    )
    for name, change in changes:
        if change:
            connection.execute(_SQL[name].sql, {"given": as_json(change)})


def add_state(connection: psycopg.Connection, given: Collection[StateUpdate]) -> None:
    """Add state outside of a checkpoint: it belongs to later checkpoints only."""
    rows = [
        {"run_id": it.run, "task": it.task, "channel": it.channel, "origin": it.origin,
         "position": position, "input": each.input, "payload": each.payload, "files": each.files}
        for it in given
        for position, each in enumerate(it.state)
    ]  # fmt: skip
    connection.execute(_SQL["add_state"].sql, {"given": as_json(rows)})


def _compacted(given: Collection[Acknowledgement]) -> list[dict[str, object]]:
    return [
        {"run_id": it.run, "task": it.task, "number": it.number, "input": port, "up_to": up_to}
        for it in given
        for port, up_to in it.compacted
    ]


def _entries(given: Collection[Acknowledgement]) -> list[dict[str, object]]:
    return [
        {"task": it.task, **_row(it, position, each)}
        for it in given
        for position, each in enumerate(it.state)
    ]


def _outputs(given: Collection[Acknowledgement]) -> list[dict[str, object]]:
    return [_row(it, position, each) for it in given for position, each in enumerate(it.outputs)]


def _row(it: Acknowledgement, position: int, entry: StateEntry) -> dict[str, object]:
    return {
        "run_id": it.run,
        "number": it.number,
        "position": position,
        "input": entry.input,
        "payload": entry.payload,
        "files": entry.files,
    }


@dataclass(frozen=True, slots=True)
class RestoredEntry:
    """An entry of a task's state: its input, and the checkpoint since which it is there."""

    input: int
    since: int
    payload: Payload


def state_of(connection: psycopg.Connection, run: RunInfo, task: str) -> list[RestoredEntry]:
    """The state of a task for a run, in the order in which it was added."""
    rows = connection.execute(_SQL["state_of"].sql, {"run": run.id, "task": task})
    return [RestoredEntry(port, since, decode_state(payload)) for port, since, payload in rows]


@dataclass(frozen=True, slots=True)
class WithdrawnCheckpoints:
    """The checkpoints of a run whose barriers are to be ignored."""

    up_to: int = 0
    """All up to here."""
    also: frozenset[int] = frozenset()

    def __contains__(self, number: int) -> bool:
        return number <= self.up_to or number in self.also


def withdrawn_checkpoints(
    connection: psycopg.Connection, runs: Collection[int]
) -> dict[int, WithdrawnCheckpoints]:
    """By run the checkpoints that were aborted or became unaligned."""
    rows = connection.execute(_SQL["withdrawn"].sql, {"runs": list(runs)})
    return {run: WithdrawnCheckpoints(up_to, frozenset(also)) for run, up_to, also in rows}


# ── deciding ──


def runs_to_checkpoint(
    connection: psycopg.Connection, pipeline: str
) -> list[tuple[RunInfo, CheckpointFacts]]:
    """The runs with periodic checkpoints or a pending one, with the facts of each."""
    rows = connection.execute(_SQL["runs_to_checkpoint"].sql, {"pipeline": pipeline}).fetchall()
    return [_checkpoint_facts(connection, *row) for row in rows]


def _checkpoint_facts(connection: psycopg.Connection, *row: Any) -> tuple[RunInfo, CheckpointFacts]:
    run = RunInfo.from_row(*row[:6])
    checkpoints, collector, has_open_source, *times, failures, unaligned = row[6:]
    since, rested, unpublished = times
    return run, CheckpointFacts(
        checkpoints=msgspec.json.decode(checkpoints, type=Checkpoints)
        if checkpoints
        else Checkpoints(),
        collector=collector,
        is_open=run.state.value == "open",
        has_open_source=has_open_source,
        since=since,
        rested=rested,
        unpublished=unpublished,
        failures=failures,
        unaligned=unaligned,
        pending=_pending(connection, run),
    )


def _pending(connection: psycopg.Connection, run: RunInfo) -> PendingCheckpoint | None:
    row = connection.execute(_SQL["pending"].sql, {"run": run.id}).fetchone()
    if row is None:
        return None
    number, _, state, age, complete_for, owing, acknowledged, alignment_timeout = row
    return PendingCheckpoint(
        number,
        CheckpointState(state),
        age,
        tuple(owing),
        frozenset(acknowledged),
        tuple(_waiting(connection, run, number)),
        complete_for,
        alignment_timeout,
    )


def _waiting(connection: psycopg.Connection, run: RunInfo, number: int) -> Iterator[WaitingTask]:
    parameters = {"run": run.id, "number": number}
    rows = connection.execute(_SQL["waiting"].sql, parameters).fetchall()
    for task, group in groupby(rows, key=itemgetter(0)):
        channels = [*group]
        missing = tuple(upstream for _, upstream, has_arrived, _ in channels if not has_arrived)
        yield WaitingTask(task, missing, channels[0][3])


def advance(connection: psycopg.Connection, run: RunInfo, number: int, to: CheckpointState) -> None:
    """Set the state of a pending checkpoint."""
    parameters = {"run": run.id, "number": number, "state": to.value}
    connection.execute(_SQL["advance"].sql, parameters)


def abort(
    connection: psycopg.Connection, run: RunInfo, number: int, reason: str, offender: str
) -> bool:
    """Abort a checkpoint and notify the run's tasks; False when it was settled before."""
    texts = {"reason": storable(reason), "offender": storable(offender)}
    parameters = {"run": run.id, "number": number, **texts}
    if not connection.execute(_SQL["abort"].sql, parameters).rowcount:
        return False
    for name in ("drop_outputs", "record_unused", "drop_in_flight"):
        connection.execute(_SQL[name].sql, {"run": run.id, "number": number})
    notify(connection, closing_topics(connection, [run.id]))
    crash_point("checkpoint.abort.before_commit")
    return True


def commit(
    connection: psycopg.Connection, run: RunInfo, number: int, versions: Mapping[str, str]
) -> bool:
    """Commit a checkpoint by one row; False when it was settled before."""
    parameters = {"run": run.id, "number": number, "versions": as_json(versions)}
    if not connection.execute(_SQL["commit"].sql, parameters).rowcount:
        return False
    notify(connection, [run_topic(run.pipeline)])
    crash_point("checkpoint.commit.before_commit")
    return True


# ── reading ──


def checkpoints_of(connection: psycopg.Connection, run: RunInfo) -> list[Checkpoint]:
    """The retained checkpoints of a run, the oldest first."""
    rows = connection.execute(_SQL["checkpoints_of"].sql, {"run": run.id})
    return [_checkpoint(*row) for row in rows]


def _checkpoint(number: int, id: UUID, epoch: int, state: str, *more: Any) -> Checkpoint:
    return Checkpoint(number, id, epoch, CheckpointState(state), *more)


def committed_checkpoint(
    connection: psycopg.Connection,
    run: RunInfo,
    number: int | None = None,
    *,
    published: bool = False,
) -> CommittedCheckpoint | None:
    """A committed checkpoint, by default the latest (`published`: the latest published one)."""
    parameters = {"run": run.id, "number": number, "published": published}
    row = connection.execute(_SQL["manifest_of"].sql, parameters).fetchone()
    return CommittedCheckpoint(*row) if row else None


def sink_results(
    connection: psycopg.Connection, run: RunInfo, collector: str, number: int
) -> list[SinkResult]:
    """The results of all sinks at a checkpoint, from the state of the result collector."""
    parameters = {"run": run.id, "task": collector, "number": number}
    rows = connection.execute(_SQL["sink_results"].sql, parameters)
    return [msgspec.convert(payload, SinkResult) for (payload,) in rows]


_SQL = queries(__name__)
