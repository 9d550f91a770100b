"""Checkpoints in PostgreSQL: triggered, injected, acknowledged, and committed by one row.

What a task keeps from a barrier on (`StateEntry`) is written by the step in which the barrier
leaves it, together with its cursors. So a task that is built anew reads its state here and the
messages behind the barrier on its channels. A state belongs to every checkpoint from the one that
added it on: taking one costs what has changed, not what there is.
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
    """A file as it has to be found again."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class StateEntry:
    """Something that a task keeps: for which of its inputs, what, and the files that it names."""

    input: int
    payload: Payload
    files: tuple[FileChecksum, ...] = ()


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """A barrier has left a task: what the task keeps from here on, what sinks gave up to here."""

    run: int
    number: int
    task: str
    state: tuple[StateEntry, ...] = ()
    outputs: tuple[StateEntry, ...] = ()
    compacted: tuple[tuple[int, int], ...] = ()
    """By input the checkpoint up to which what was kept is among `state` in another form."""
    waited: float = 0.0
    """Seconds from the first to the last copy."""
    last: str = ""
    """Who brought the last copy."""

    @property
    def bytes(self) -> int:
        """Of the files that were added."""
        return sum(file.bytes for each in (*self.state, *self.outputs) for file in each.files)


@dataclass(frozen=True, slots=True)
class StateUpdate:
    """What a task keeps of messages that no barrier has come behind, and its move over them."""

    run: int
    task: str
    channel: int
    origin: int
    """Where the channel's cursor stands; elsewhere it was settled before."""
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
    """One checkpoint of a run, for people."""

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
    """Whether sinks show it, if it is a cut; else it only keeps states."""
    is_aligned: bool = True
    """Whether all its barriers were waited for; else it has also what was on its way."""
    up_to: int | None = None
    """The least watermark of a source that goes on, in milliseconds since 1970, if one has any."""


@dataclass(frozen=True, slots=True)
class CommittedCheckpoint:
    """A committed checkpoint."""

    number: int
    manifest: Mapping[str, Any]


# ── beginning ──


def set_checkpoints(connection: psycopg.Connection, run: RunInfo, checkpoints: Checkpoints) -> None:
    """Say how a run is to be cut."""
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
    patience: float | None = None,
) -> int | None:
    """Begin a checkpoint: its number, or None while another is under way or all sources have ended.

    A quiet one keeps states, and sinks do not show it. After its patience, in seconds, it waits for
    no barriers. Raises `RunEnded` when the run is closed.
    """
    lock_open(connection, run, "*")
    asked = {"run": run.id, "id": id, "unpublished": unpublished, "alignment_timeout": patience}
    row = connection.execute(_SQL["trigger"].sql, asked).fetchone()
    if row is None:
        return None
    notify(connection, [checkpoint_topic(run.pipeline), monitor_topic(run.pipeline)])
    crash_point("checkpoint.trigger.before_commit")
    return int(row[0])


def pending_barriers(connection: psycopg.Connection, pipeline: str) -> list[PendingBarrier]:
    """The barriers that sources still have to inject."""
    rows = connection.execute(_SQL["owed"].sql, {"pipeline": pipeline})
    return [PendingBarrier(RunInfo.from_row(*row[:6]), *row[6:]) for row in rows]


def inject(
    connection: psycopg.Connection,
    run: RunInfo,
    source: str,
    barrier: CheckpointBarrier,
    channels: Sequence[ChannelName],
) -> bool:
    """Put a source's barrier on its channels; False when it is there, or is not wanted any more."""
    try:
        lock_open(connection, run, source)
    except RunEnded:
        return False
    number = barrier.checkpoint_id
    asked = {"run": run.id, "source": source, "number": number}
    row = connection.execute(_SQL["hold_injection"].sql, asked).fetchone()
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
    connection.execute(_SQL["note_injected"].sql, asked)
    topics = {task_topic(run.pipeline, channel.to_task) for channel in channels}
    notify(connection, {*topics, monitor_topic(run.pipeline)})
    crash_point("checkpoint.inject.before_commit")
    return True


# ── acknowledging: part of a step ──


def acknowledge(connection: psycopg.Connection, given: Collection[Acknowledgement]) -> None:
    """Write what tasks say when barriers leave them."""
    rows = [
        {"run_id": it.run, "number": it.number, "task": it.task, "alignment_seconds": it.waited,
         "last_upstream": it.last, "bytes": it.bytes}
        for it in given
    ]  # fmt: skip
    connection.execute(_SQL["acknowledge"].sql, {"given": as_json(rows)})
    changes = (
        ("compact", _compacted(given)),
        ("remember", _kept(given)),
        ("stage", _outputs(given)),
    )
    for name, kept in changes:
        if kept:
            connection.execute(_SQL[name].sql, {"given": as_json(kept)})


def add_state(connection: psycopg.Connection, given: Collection[StateUpdate]) -> None:
    """Write what tasks keep though no barrier asks for it: it belongs to later checkpoints only."""
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


def _kept(given: Collection[Acknowledgement]) -> list[dict[str, object]]:
    return [
        {"task": it.task, **_row(it, position, each)}
        for it in given
        for position, each in enumerate(it.state)
    ]


def _outputs(given: Collection[Acknowledgement]) -> list[dict[str, object]]:
    return [_row(it, position, each) for it in given for position, each in enumerate(it.outputs)]


def _row(it: Acknowledgement, position: int, kept: StateEntry) -> dict[str, object]:
    return {
        "run_id": it.run,
        "number": it.number,
        "position": position,
        "input": kept.input,
        "payload": kept.payload,
        "files": kept.files,
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
    """The checkpoints of a run whose barriers mean nothing any more."""

    up_to: int = 0
    """All up to here."""
    also: frozenset[int] = frozenset()

    def __contains__(self, number: int) -> bool:
        return number <= self.up_to or number in self.also


def withdrawn_checkpoints(
    connection: psycopg.Connection, runs: Collection[int]
) -> dict[int, WithdrawnCheckpoints]:
    """By run the checkpoints that were given up, or wait for nobody any more."""
    rows = connection.execute(_SQL["withdrawn_among"].sql, {"runs": list(runs)})
    return {run: WithdrawnCheckpoints(up_to, frozenset(also)) for run, up_to, also in rows}


# ── deciding ──


def runs_to_checkpoint(
    connection: psycopg.Connection, pipeline: str
) -> list[tuple[RunInfo, CheckpointFacts]]:
    """The runs that are cut or have a checkpoint under way, with what is known of each."""
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
    number, _, state, age, complete_for, owing, acknowledged, patience = row
    return PendingCheckpoint(
        number,
        CheckpointState(state),
        age,
        tuple(owing),
        frozenset(acknowledged),
        tuple(_waiting(connection, run, number)),
        complete_for,
        patience,
    )


def _waiting(connection: psycopg.Connection, run: RunInfo, number: int) -> Iterator[WaitingTask]:
    asked = {"run": run.id, "number": number}
    rows = connection.execute(_SQL["waiting"].sql, asked).fetchall()
    for task, its in groupby(rows, key=itemgetter(0)):
        channels = [*its]
        missing = tuple(upstream for _, upstream, is_here, _ in channels if not is_here)
        yield WaitingTask(task, missing, channels[0][3])


def advance(connection: psycopg.Connection, run: RunInfo, number: int, to: CheckpointState) -> None:
    """Note how far a checkpoint has come."""
    asked = {"run": run.id, "number": number, "state": to.value}
    connection.execute(_SQL["advance"].sql, asked)


def abort(
    connection: psycopg.Connection, run: RunInfo, number: int, reason: str, offender: str
) -> bool:
    """Give a checkpoint up and tell the run's tasks; False when it was over before."""
    said = {"reason": storable(reason), "offender": storable(offender)}
    asked = {"run": run.id, "number": number, **said}
    if not connection.execute(_SQL["abort"].sql, asked).rowcount:
        return False
    for name in ("drop_outputs", "note_in_flight", "drop_in_flight"):
        connection.execute(_SQL[name].sql, {"run": run.id, "number": number})
    notify(connection, closing_topics(connection, [run.id]))
    crash_point("checkpoint.abort.before_commit")
    return True


def commit(
    connection: psycopg.Connection, run: RunInfo, number: int, versions: Mapping[str, str]
) -> bool:
    """Make a checkpoint a cut, by one row; False when it was over before."""
    asked = {"run": run.id, "number": number, "versions": as_json(versions)}
    if not connection.execute(_SQL["commit"].sql, asked).rowcount:
        return False
    notify(connection, [run_topic(run.pipeline)])
    crash_point("checkpoint.commit.before_commit")
    return True


# ── looking ──


def checkpoints_of(connection: psycopg.Connection, run: RunInfo) -> list[Checkpoint]:
    """All checkpoints of a run that are remembered, the oldest first."""
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
    """A cut of a run, by default the latest (`published`: that sinks show); None without one."""
    asked = {"run": run.id, "number": number, "published": published}
    row = connection.execute(_SQL["manifest_of"].sql, asked).fetchone()
    return CommittedCheckpoint(*row) if row else None


def sink_results(
    connection: psycopg.Connection, run: RunInfo, collector: str, number: int
) -> list[SinkResult]:
    """The results of all sinks at a checkpoint, from the state of the result collector."""
    asked = {"run": run.id, "task": collector, "number": number}
    rows = connection.execute(_SQL["sink_results"].sql, asked)
    return [msgspec.convert(payload, SinkResult) for (payload,) in rows]


_SQL = queries(__name__)
