"""Durable lanes: messages between tasks, per run, in PostgreSQL.

A lane is known by the task it comes from, the task it leads to, and by which of that task's
inputs. Its messages are numbered densely from 1; an END says how many came before it. A cursor
stands behind the last message that has had its effect. One step of a task is one transaction,
`commit_step`: cursors move, what followed is appended, all under the task's lease. So a message
either has had its effect or will be read again, and never both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import psycopg

from tidegate.errors import LaneConflict, RunEnded
from tidegate.faults import crash_point
from tidegate.signals import Barrier, StreamMessage
from tidegate.store.leases import Lease, guard
from tidegate.store.messages import decode, encode
from tidegate.store.queries import queries
from tidegate.store.runs import LaneName, Run, RunState
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


def task_topic(pipeline: str, task: str) -> str:
    """The topic under which a task is woken; also the key of its lease."""
    return f"{pipeline}/{task}"


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
    id = _open_lane(connection, run, lane)
    known = _known(connection, id, [each for each, _ in messages])
    fresh = [Sent(id, each, message) for each, message in messages if each not in known]
    _append(connection, fresh)
    if fresh:
        notify(connection, [task_topic(run.pipeline, lane.to_task)])
    return len(fresh)


def _open_lane(connection: psycopg.Connection, run: Run, lane: LaneName) -> int:
    row = connection.execute(
        _SQL["find_lane"].sql,
        {
            "run": run.id,
            "from_task": lane.from_task,
            "to_task": lane.to_task,
            "input": lane.input,
        },
    ).fetchone()
    if row is None:
        raise LaneConflict(task=lane.to_task, reason=f"run {run.key} has no lane {lane}")
    id, state = row
    if state != RunState.OPEN.value:
        raise RunEnded(run=run.name, source=lane.to_task, how=state)
    return int(id)


def commit_step(connection: psycopg.Connection, step: StepCommit) -> bool:
    """Everything a step changes, or nothing of it; False when it was committed before.

    That happens when the connection broke during the commit and the transaction is run again.
    """
    guard(connection, step.lease)
    if not _advance(connection, step):
        return False
    _append(connection, step.sent)
    if step.ended_runs:
        connection.execute(_SQL["end_runs"].sql, {"runs": list(step.ended_runs)})
    notify(connection, step.wakes)
    crash_point("step.before_commit")
    return True


def _advance(connection: psycopg.Connection, step: StepCommit) -> bool:
    """Whether the step is still to be done; under its lease nobody else can have done it."""
    if not step.advances:
        first = step.sent[:1]
        return not any(_known(connection, sent.lane, [sent.id]) for sent in first)
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


def _append(connection: psycopg.Connection, sent: Sequence[Sent]) -> None:
    if not sent:
        return
    lanes = [each.lane for each in sent]
    last: dict[int, int] = dict(
        connection.execute(_SQL["reserve"].sql, {"lanes": lanes}).fetchall()
    )
    seqs = _numbered(lanes, last)
    rows = [encode(_counted(each.message, seq)) for each, seq in zip(sent, seqs, strict=True)]
    connection.execute(
        _SQL["append"].sql,
        {
            "lanes": lanes,
            "seqs": seqs,
            "ids": [each.id for each in sent],
            "kinds": [kind for kind, _ in rows],
            "payloads": [payload for _, payload in rows],
        },
    )


def _numbered(lanes: Sequence[int], last: dict[int, int]) -> list[int]:
    """The number of each message, given the last number that was reserved on each lane."""
    following = {lane: last[lane] - number for lane, number in Counter(lanes).items()}
    seqs = []
    for lane in lanes:
        following[lane] += 1
        seqs.append(following[lane])
    return seqs


def _counted(message: StreamMessage, seq: int) -> StreamMessage:
    """An END says how many messages of its run came before it on its lane."""
    if isinstance(message, Barrier) and message.is_end:
        return message.counting(seq - 1)
    return message


def _known(connection: psycopg.Connection, lane: int, ids: Sequence[UUID]) -> set[UUID]:
    rows = connection.execute(_SQL["known_ids"].sql, {"lane": lane, "ids": list(ids)})
    return {id for (id,) in rows}


_SQL = queries("lanes")
