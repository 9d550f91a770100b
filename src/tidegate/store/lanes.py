"""Durable lanes: messages between tasks, per run, in PostgreSQL.

A lane is known by the task it comes from, the task it leads to, and by which of that task's
inputs. Its messages are numbered densely from 1; an END says how many came before it. A cursor
stands behind the last message that has had its effect. One step of a task is one transaction,
`commit_step`: cursors move, what followed is appended, all under the task's lease. So a message
either has had its effect or will be read again, and never both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg

from tidegate.errors import LaneConflict
from tidegate.faults import crash_point
from tidegate.signals import Barrier, StreamMessage
from tidegate.store.leases import Lease, guard
from tidegate.store.messages import decode, encode
from tidegate.store.queries import queries
from tidegate.store.runs import LaneName, Run, hold_open
from tidegate.store.topics import task_topic
from tidegate.store.wakeups import notify

FETCH = 256
"""How many messages of a lane are fetched at a time."""


@dataclass(frozen=True, slots=True)
class LaneState:
    """A lane of a run and how far its receiver has come."""

    id: int
    name: LaneName
    cursor: int


@dataclass(frozen=True, slots=True)
class Unread:
    """A message that waits on a lane."""

    run: Run
    lane: int
    seq: int
    message: StreamMessage


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that goes out, under the id its cause gives it."""

    lane: int
    id: UUID
    message: StreamMessage


@dataclass(frozen=True, slots=True)
class Advance:
    """A cursor's move over messages that have had their effect."""

    lane: int
    origin: int
    target: int


@dataclass(frozen=True, slots=True)
class StepCommit:
    """Everything one step of a task changes."""

    lease: Lease
    advances: tuple[Advance, ...] = ()
    sent: tuple[Sent, ...] = ()
    ended_runs: tuple[int, ...] = ()
    wakes: tuple[str, ...] = ()
    """The topics that have news by it."""


# ── reading ──


def lanes_of(connection: psycopg.Connection, run: Run, task: str) -> list[LaneState]:
    """The lanes into and out of a task."""
    rows = connection.execute(_SQL["lanes_of"].sql, {"run": run.id, "task": task})
    return [LaneState(id, LaneName(*way), cursor) for id, *way, cursor in rows]


def unread(
    connection: psycopg.Connection,
    pipeline: str,
    task: str,
    fetched: dict[int, int],
    limit: int = FETCH,
) -> list[Unread]:
    """The next messages for a task in all open runs, lane by lane in order.

    `fetched` says for lanes up to where messages are already at hand; others start behind
    their cursor.
    """
    rows = connection.execute(
        _SQL["unread"].sql,
        {
            "pipeline": pipeline,
            "task": task,
            "lanes": list(fetched.keys()),
            "fetched": list(fetched.values()),
            "limit": limit,
        },
    )
    return [_unread(*row) for row in rows]


def _unread(*row: object) -> Unread:
    *of_run, lane, seq, kind, payload = row
    run = Run.from_row(*of_run)
    assert isinstance(lane, int)
    assert isinstance(seq, int)
    return Unread(run, lane, seq, decode(str(kind), str(payload), run.key))


def last_watermarks(connection: psycopg.Connection, positions: dict[int, int]) -> dict[int, int]:
    """For each lane that has one, the last watermark up to a position."""
    rows = connection.execute(
        _SQL["last_watermarks"].sql,
        {"lanes": list(positions.keys()), "positions": list(positions.values())},
    )
    return dict(rows.fetchall())


# ── writing ──


def append(
    connection: psycopg.Connection,
    run: Run,
    lane: LaneName,
    messages: Sequence[tuple[UUID, StreamMessage]],
) -> int:
    """Put messages on a lane from outside of any task; those it has already are skipped.

    Answers how many were not there before.
    """
    hold_open(connection, run, lane.to_task)
    lanes = lane_ids(find_lanes(connection, run, [lane]).fetchall(), run, [lane])
    fresh = put(connection, [Sent(lanes[lane], id, message) for id, message in messages]).rowcount
    if fresh:
        notify(connection, [task_topic(run.pipeline, lane.to_task)])
    return fresh


def find_lanes(
    connection: psycopg.Connection, run: Run, names: Sequence[LaneName]
) -> psycopg.Cursor[Any]:
    """Look up lanes and lock them; `lane_ids` understands the rows."""
    return connection.execute(
        _SQL["find_lanes"].sql,
        {
            "run": run.id,
            "from_tasks": [name.from_task for name in names],
            "to_tasks": [name.to_task for name in names],
            "inputs": [name.input for name in names],
        },
    )


def lane_ids(
    rows: Iterable[tuple[Any, ...]], run: Run, names: Sequence[LaneName]
) -> dict[LaneName, int]:
    """The id of every lane that was asked for."""
    found = {LaneName(*way): id for id, *way in rows}
    for name in names:
        if name not in found:
            raise LaneConflict(task=name.to_task, reason=f"run {run.key} has no lane {name}")
    return found


def put(connection: psycopg.Connection, sent: Sequence[Sent]) -> psycopg.Cursor[Any]:
    """Append messages, an END with how many came before it on its lane; known ones are skipped."""
    rows = [encode(each.message) for each in sent]
    return connection.execute(
        _SQL["append"].sql,
        {
            "lanes": [each.lane for each in sent],
            "ids": [each.id for each in sent],
            "kinds": [kind for kind, _ in rows],
            "payloads": [payload for _, payload in rows],
            "ends": [_is_end(each.message) for each in sent],
        },
    )


def _is_end(message: StreamMessage) -> bool:
    return isinstance(message, Barrier) and message.is_end


def commit_step(connection: psycopg.Connection, step: StepCommit) -> bool:
    """Everything a step changes, or nothing of it; False when it was committed before.

    That happens when the connection broke during the commit and the transaction is run again.
    """
    guard(connection, step.lease)
    if not _advance(connection, step):
        return False
    if step.sent and not put(connection, step.sent).rowcount:
        return False
    if step.ended_runs:
        connection.execute(_SQL["end_runs"].sql, {"runs": list(step.ended_runs)})
    notify(connection, step.wakes)
    crash_point("step.before_commit")
    return True


def _advance(connection: psycopg.Connection, step: StepCommit) -> bool:
    """Whether the step is still to be done; under its lease nobody else can have done it."""
    if not step.advances:
        return True
    moved = connection.execute(
        _SQL["advance"].sql,
        {
            "lanes": [advance.lane for advance in step.advances],
            "origins": [advance.origin for advance in step.advances],
            "targets": [advance.target for advance in step.advances],
        },
    ).rowcount
    if moved == len(step.advances):
        return True
    lanes = [advance.lane for advance in step.advances]
    stand: dict[int, int] = dict(
        connection.execute(_SQL["cursors"].sql, {"lanes": lanes}).fetchall()
    )
    if moved == 0 and all(stand.get(move.lane) == move.target for move in step.advances):
        return False
    raise LaneConflict(task=step.lease.key, reason=f"cursors stand at {stand}")


_SQL = queries("lanes")
