"""Steps: everything that one step of a task changes, in one transaction or not at all.

`commit_step` moves cursors over the messages that have had their effect, appends what followed
from them, publishes results and closes runs, under the task's lease. So a message either has had
its effect or will be read again, and never both. What the step did for runs that were closed in
the meantime is dropped; the others are not hindered by them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg

from tidegate.dataflow import Batch
from tidegate.errors import ChannelConflict, Overtaken
from tidegate.faults import crash_point
from tidegate.store.checkpoints.checkpoints import Acknowledged, StateUpdate, acknowledge, add_state
from tidegate.store.checkpoints.unaligned import ask_for_late
from tidegate.store.core.leases import Lease, check_held, hold_leases
from tidegate.store.core.notifications import notify
from tidegate.store.core.queries import queries
from tidegate.store.core.text import storable
from tidegate.store.core.topics import run_topic
from tidegate.store.runs.channels import Sent, put
from tidegate.store.runs.message_codec import as_json
from tidegate.store.runs.runs import RunState, closing_topics, waiting_flows


@dataclass(frozen=True, slots=True)
class Advance:
    """A cursor's move over messages that have had their effect."""

    channel: int
    origin: int
    target: int


@dataclass(frozen=True, slots=True)
class Published:
    """What a sink of a run gave."""

    run: int
    sink: str
    batches: Collection[Batch]
    """What names the files; anything that msgspec can write as JSON."""
    rows: int


@dataclass(frozen=True, slots=True)
class Failed:
    """A run that cannot be completed, and the first cause."""

    run: int
    cause: str


@dataclass(frozen=True, slots=True)
class StepCommit:
    """Everything one step of a task changes."""

    lease: Lease
    advances: tuple[Advance, ...] = ()
    sent: tuple[Sent, ...] = ()
    ended_runs: tuple[int, ...] = ()
    wakes: tuple[str, ...] = ()
    """The topics that have news by it; `monitor_topic` among them when an END was sent to a task
    that the monitor releases, or when such a task's cursors move."""
    published: tuple[Published, ...] = ()
    failed: tuple[Failed, ...] = ()
    also: tuple[Lease, ...] = ()
    """Further leases under which it is written."""
    acknowledged: tuple[Acknowledged, ...] = ()
    """Checkpoints whose barriers leave the task."""
    state_updates: tuple[StateUpdate, ...] = ()
    """What becomes part of the task's state without a checkpoint."""
    runs: tuple[int, ...] = ()
    """Runs it touches, named here to hear also of those whose channels are gone."""

    @property
    def changes(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.advances or self.sent or self.acknowledged or self.closing)

    @property
    def closing(self) -> bool:
        """Whether it closes runs."""
        return bool(self.ended_runs or self.failed)


@dataclass(frozen=True, slots=True)
class Committed:
    """What became of a step."""

    is_new: bool
    """False when there was nothing left to do: it was committed before, or its runs are closed."""
    closed: frozenset[int]
    """The runs that were closed before, for which it did nothing."""


@dataclass(frozen=True, slots=True)
class _Answers:
    """What PostgreSQL said to each statement of a step."""

    leases: list[psycopg.Cursor[Any]]
    runs: psycopg.Cursor[Any]
    moved: psycopg.Cursor[Any] | None
    put: psycopg.Cursor[Any] | None
    closed: psycopg.Cursor[Any] | None
    late: psycopg.Cursor[Any] | None


def commit_step(connection: psycopg.Connection, step: StepCommit) -> Committed:
    """Everything a step changes, or nothing of it, or what of it was left to do.

    The statements go to the server together, and their answers are looked at afterwards: an error
    raised here takes everything back. `Overtaken` names runs that have to be read anew.
    """
    with connection.pipeline():
        answers = _write(connection, step)
    check_held(answers.leases, (step.lease, *step.also))
    _refuse_late(step, answers)
    runs = {id: (pipeline, state) for id, pipeline, state in answers.runs.fetchall()}
    is_new = _is_new(connection, step, answers)
    closed = {id for (id,) in answers.closed.fetchall()} if answers.closed else set()
    if step.closing:
        notify(connection, {*step.wakes, *_closing_topics(connection, step, closed, runs)})
    if step.published:
        crash_point("publish.before_commit")
    if step.acknowledged:
        crash_point("checkpoint.acknowledge.before_commit")
    crash_point("step.before_commit")
    return Committed(is_new or bool(closed), _closed_before(step, runs))


def fail_runs(connection: psycopg.Connection, failed: Collection[Failed]) -> None:
    """Close runs that cannot be completed, outside of any step, and tell everybody."""
    causes = {failure.run: failure.cause for failure in failed}
    with connection.pipeline():
        _hold(connection, channels=(), runs=causes, closing=True)
        answer = _close(connection, (), causes)
    closed = [id for (id,) in answer.fetchall()]
    if closed:
        notify(connection, closing_topics(connection, closed))


def closed_among(connection: psycopg.Connection, runs: Collection[int]) -> set[int]:
    """Which of these runs are no longer open."""
    rows = connection.execute(_SQL["closed_among"].sql, {"runs": list(runs)})
    return {id for (id,) in rows}


# ── writing ──


def _write(connection: psycopg.Connection, step: StepCommit) -> _Answers:
    """Send all statements of a step, in the order in which locks are taken everywhere."""
    leases = hold_leases(connection, (step.lease, *step.also))
    runs = _hold_runs(connection, step)
    if step.state_updates:
        add_state(connection, step.state_updates)  # it looks where cursors stand
    moved = _advance(connection, step.advances) if step.advances else None
    appended = put(connection, step.sent) if step.sent else None
    if step.published:
        _publish(connection, step.published)
    late = ask_for_late(connection, step.acknowledged)
    if step.acknowledged:
        acknowledge(connection, step.acknowledged)
    failed = {failure.run: failure.cause for failure in reversed(step.failed)}
    closed = _close(connection, step.ended_runs, failed) if step.closing else None
    if not step.closing:
        notify(connection, step.wakes)
    return _Answers(leases, runs, moved, appended, closed, late)


def _hold_runs(connection: psycopg.Connection, step: StepCommit) -> psycopg.Cursor[Any]:
    channels = {move.channel for move in step.advances} | {sent.channel for sent in step.sent}
    return _hold(connection, channels, _named_runs(step), closing=step.closing)


def _hold(
    connection: psycopg.Connection, channels: Iterable[int], runs: Iterable[int], *, closing: bool
) -> psycopg.Cursor[Any]:
    """Lock runs, all in one way: who would lock some more strongly later could wait in a ring."""
    query = _SQL["hold_runs_to_close" if closing else "hold_runs"]
    asked = {"channels": as_json(list(channels)), "runs": as_json(list(runs))}
    return connection.execute(query.sql, asked)


def _named_runs(step: StepCommit) -> set[int]:
    closing = {*step.ended_runs, *(failure.run for failure in step.failed)}
    return {*step.runs, *closing, *(result.run for result in step.published)}


def _advance(connection: psycopg.Connection, advances: Collection[Advance]) -> psycopg.Cursor[Any]:
    return connection.execute(_SQL["advance"].sql, {"moves": as_json(advances)})


def _publish(connection: psycopg.Connection, published: Collection[Published]) -> None:
    connection.execute(
        _SQL["publish"].sql,
        {
            "runs": [result.run for result in published],
            "sinks": [result.sink for result in published],
            "rows": [result.rows for result in published],
            "batches": [as_json(result.batches) for result in published],
        },
    )


def _close(
    connection: psycopg.Connection, ended: Iterable[int], failed: Mapping[int, str]
) -> psycopg.Cursor[Any]:
    well = [run for run in ended if run not in failed]
    return connection.execute(
        _SQL["close_runs"].sql,
        {
            "runs": [*well, *failed],
            "states": [RunState.ENDED.value] * len(well) + [RunState.FAILED.value] * len(failed),
            "causes": [None] * len(well) + [storable(cause) for cause in failed.values()],
        },
    )


# ── understanding the answers ──


def _refuse_late(step: StepCommit, answers: _Answers) -> None:
    late = tuple(id for (id,) in answers.late.fetchall()) if answers.late else ()
    if late:
        raise Overtaken(step.lease.key, late)


def _is_new(connection: psycopg.Connection, step: StepCommit, answers: _Answers) -> bool:
    """Whether the step was still to be done; under its lease nobody else can have done it."""
    moved = _is_moved(connection, step, answers.moved)
    offered, fresh = _counts(answers.put)
    if fresh not in {0, offered} or (moved is not None and offered and moved != bool(fresh)):
        reason = (
            f"{offered - fresh} of {offered} messages have ids that their channels know already"
        )
        raise ChannelConflict(task=step.lease.key, reason=reason)
    return bool(moved or fresh)


def _is_moved(
    connection: psycopg.Connection, step: StepCommit, answer: psycopg.Cursor[Any] | None
) -> bool | None:
    """Whether all cursors of open runs moved; None if there were none to move."""
    moved = dict(answer.fetchall()) if answer else {}
    if all(moved.values()):
        return True if moved else None
    rows = connection.execute(_SQL["cursors"].sql, {"channels": list(moved)}).fetchall()
    run_until_stopped: dict[int, int] = dict(rows)
    targets = {move.channel: move.target for move in step.advances if move.channel in moved}
    if any(moved.values()) or run_until_stopped != targets:
        raise ChannelConflict(task=step.lease.key, reason=f"cursors stand at {run_until_stopped}")
    return False


def _counts(answer: psycopg.Cursor[Any] | None) -> tuple[int, int]:
    """How many messages were for open runs, and how many of those were not there before."""
    row = answer.fetchone() if answer else None
    return (int(row[0]), int(row[1])) if row else (0, 0)


def _closed_before(step: StepCommit, runs: dict[int, tuple[str, str]]) -> frozenset[int]:
    gone = _named_runs(step) - runs.keys()
    closed = {id for id, (_, state) in runs.items() if state != RunState.OPEN.value}
    return frozenset(gone | closed)


def _closing_topics(
    connection: psycopg.Connection,
    step: StepCommit,
    closed: Iterable[int],
    runs: dict[int, tuple[str, str]],
) -> set[str]:
    """All tasks of a run that failed have something to forget; one that ended has left them."""
    now_closed = set(closed)
    failed = [failure.run for failure in step.failed if failure.run in now_closed]
    waiting = {run_topic(pipeline) for id, (pipeline, _) in runs.items() if id in now_closed}
    waiting |= waiting_flows(connection, list(now_closed)) if now_closed else set()
    return waiting | (closing_topics(connection, failed) if failed else set())


_SQL = queries(__name__)
