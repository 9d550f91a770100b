"""Commits everything that one step of a task changes, in one transaction.

`commit_step` advances cursors over the processed messages, appends outputs, publishes results and
closes runs, under the task's lease. A message is therefore either processed or read again, never
both. Changes to runs that were closed in the meantime are dropped; other runs are not affected.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg

from tidegate.dataflow import Batch
from tidegate.errors import ChannelConflict, Overtaken
from tidegate.faults import crash_point
from tidegate.store.checkpoints.checkpoints import (
    Acknowledgement,
    StateUpdate,
    acknowledge,
    add_state,
)
from tidegate.store.checkpoints.unaligned import select_overtaken
from tidegate.store.core.leases import Lease, check_held, lock_leases
from tidegate.store.core.notifications import notify
from tidegate.store.core.queries import queries
from tidegate.store.core.text import storable
from tidegate.store.core.topics import run_topic
from tidegate.store.runs.channels import OutgoingMessage, put
from tidegate.store.runs.message_codec import as_json
from tidegate.store.runs.runs import RunState, closing_topics, waiting_flows


@dataclass(frozen=True, slots=True)
class CursorAdvance:
    """An advance of a cursor over processed messages."""

    channel: int
    origin: int
    target: int


@dataclass(frozen=True, slots=True)
class SinkPublication:
    """The result of a sink of a run."""

    run: int
    sink: str
    batches: Collection[Batch]
    """File references and counts."""
    rows: int


@dataclass(frozen=True, slots=True)
class RunFailure:
    """A run that cannot be completed, and the first cause."""

    run: int
    cause: str


@dataclass(frozen=True, slots=True)
class StepCommit:
    """Everything one step of a task changes."""

    lease: Lease
    advances: tuple[CursorAdvance, ...] = ()
    sent: tuple[OutgoingMessage, ...] = ()
    ended_runs: tuple[int, ...] = ()
    topics: tuple[str, ...] = ()
    """The topics to notify; `monitor_topic` among them when END is sent to a release point, or when
    the cursors of such a task advance."""
    published: tuple[SinkPublication, ...] = ()
    failed: tuple[RunFailure, ...] = ()
    also: tuple[Lease, ...] = ()
    """Further leases that must be valid."""
    acknowledged: tuple[Acknowledgement, ...] = ()
    """Checkpoints whose barriers the task forwards."""
    state_updates: tuple[StateUpdate, ...] = ()
    """Changes of the task's state outside of checkpoints."""
    runs: tuple[int, ...] = ()
    """Affected runs, listed so that runs whose channels were removed are reported as closed."""

    @property
    def changes(self) -> bool:
        """Whether the step writes anything."""
        return bool(self.advances or self.sent or self.acknowledged or self.closing)

    @property
    def closing(self) -> bool:
        """Whether the step closes runs."""
        return bool(self.ended_runs or self.failed)


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """The outcome of a commit."""

    is_new: bool
    """False when the step was committed before, or all its runs are closed."""
    closed: frozenset[int]
    """The runs that were closed before; nothing was changed for them."""


@dataclass(frozen=True, slots=True)
class _StepResults:
    """The results of the statements of a step; read after the pipeline."""

    leases: list[psycopg.Cursor[Any]]
    runs: psycopg.Cursor[Any]
    moved: psycopg.Cursor[Any] | None
    put: psycopg.Cursor[Any] | None
    closed: psycopg.Cursor[Any] | None
    overtaken: psycopg.Cursor[Any] | None


def commit_step(connection: psycopg.Connection, step: StepCommit) -> CommitOutcome:
    """Commit a step; a repetition changes nothing.

    All statements are sent together and their results are checked afterwards: an error raised here
    rolls everything back. `Overtaken` names runs that have to be read again.
    """
    with connection.pipeline():
        results = _write(connection, step)
    check_held(results.leases, (step.lease, *step.also))
    _check_overtaken(step, results)
    runs = {id: (pipeline, state) for id, pipeline, state in results.runs.fetchall()}
    is_new = _is_new(connection, step, results)
    closed = {id for (id,) in results.closed.fetchall()} if results.closed else set()
    if step.closing:
        notify(connection, {*step.topics, *_closing_topics(connection, step, closed, runs)})
    if step.published:
        crash_point("publish.before_commit")
    if step.acknowledged:
        crash_point("checkpoint.acknowledge.before_commit")
    crash_point("step.before_commit")
    return CommitOutcome(is_new or bool(closed), _closed_before(step, runs))


def fail_runs(connection: psycopg.Connection, failed: Collection[RunFailure]) -> None:
    """Close runs that cannot be completed, outside of any step, and notify their topics."""
    causes = {failure.run: failure.cause for failure in failed}
    with connection.pipeline():
        _lock(connection, channels=(), runs=causes, closing=True)
        result = _close(connection, (), causes)
    closed = [id for (id,) in result.fetchall()]
    if closed:
        notify(connection, closing_topics(connection, closed))


def closed_among(connection: psycopg.Connection, runs: Collection[int]) -> set[int]:
    """The runs that are no longer open."""
    rows = connection.execute(_SQL["closed_among"].sql, {"runs": list(runs)})
    return {id for (id,) in rows}


# ── writing ──


def _write(connection: psycopg.Connection, step: StepCommit) -> _StepResults:
    """Send all statements of a step, in the common lock order."""
    leases = lock_leases(connection, (step.lease, *step.also))
    runs = _lock_runs(connection, step)
    if step.state_updates:
        add_state(connection, step.state_updates)  # reads cursors before they are advanced
    moved = _advance(connection, step.advances) if step.advances else None
    appended = put(connection, step.sent) if step.sent else None
    if step.published:
        _publish(connection, step.published)
    overtaken = select_overtaken(connection, step.acknowledged)
    if step.acknowledged:
        acknowledge(connection, step.acknowledged)
    failed = {failure.run: failure.cause for failure in reversed(step.failed)}
    closed = _close(connection, step.ended_runs, failed) if step.closing else None
    if not step.closing:
        notify(connection, step.topics)
    return _StepResults(leases, runs, moved, appended, closed, overtaken)


def _lock_runs(connection: psycopg.Connection, step: StepCommit) -> psycopg.Cursor[Any]:
    channels = {move.channel for move in step.advances} | {sent.channel for sent in step.sent}
    return _lock(connection, channels, _named_runs(step), closing=step.closing)


def _lock(
    connection: psycopg.Connection, channels: Iterable[int], runs: Iterable[int], *, closing: bool
) -> psycopg.Cursor[Any]:
    """Lock all runs in one mode: upgrading a lock later could deadlock."""
    query = _SQL["lock_runs_to_close" if closing else "lock_runs"]
    parameters = {"channels": as_json(list(channels)), "runs": as_json(list(runs))}
    return connection.execute(query.sql, parameters)


def _named_runs(step: StepCommit) -> set[int]:
    closing = {*step.ended_runs, *(failure.run for failure in step.failed)}
    return {*step.runs, *closing, *(result.run for result in step.published)}


def _advance(
    connection: psycopg.Connection, advances: Collection[CursorAdvance]
) -> psycopg.Cursor[Any]:
    return connection.execute(_SQL["advance"].sql, {"moves": as_json(advances)})


def _publish(connection: psycopg.Connection, published: Collection[SinkPublication]) -> None:
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
    succeeded = [run for run in ended if run not in failed]
    return connection.execute(
        _SQL["close_runs"].sql,
        {
            "runs": [*succeeded, *failed],
            "states": [RunState.ENDED.value] * len(succeeded)
            + [RunState.FAILED.value] * len(failed),
            "causes": [None] * len(succeeded) + [storable(cause) for cause in failed.values()],
        },
    )


# ── evaluating results ──


def _check_overtaken(step: StepCommit, results: _StepResults) -> None:
    overtaken = tuple(id for (id,) in results.overtaken.fetchall()) if results.overtaken else ()
    if overtaken:
        raise Overtaken(step.lease.key, overtaken)


def _is_new(connection: psycopg.Connection, step: StepCommit, results: _StepResults) -> bool:
    """Whether the step was not committed before; its lease excludes other writers."""
    moved = _is_moved(connection, step, results.moved)
    offered, fresh = _counts(results.put)
    if fresh not in {0, offered} or (moved is not None and offered and moved != bool(fresh)):
        reason = (
            f"{offered - fresh} of {offered} messages have ids that are already on their channels"
        )
        raise ChannelConflict(task=step.lease.key, reason=reason)
    return bool(moved or fresh)


def _is_moved(
    connection: psycopg.Connection, step: StepCommit, result: psycopg.Cursor[Any] | None
) -> bool | None:
    """Whether all cursors of open runs were advanced; None without cursors."""
    moved = dict(result.fetchall()) if result else {}
    if all(moved.values()):
        return True if moved else None
    rows = connection.execute(_SQL["cursors"].sql, {"channels": list(moved)}).fetchall()
    positions: dict[int, int] = dict(rows)
    targets = {move.channel: move.target for move in step.advances if move.channel in moved}
    if any(moved.values()) or positions != targets:
        raise ChannelConflict(task=step.lease.key, reason=f"its cursors are at {positions}")
    return False


def _counts(result: psycopg.Cursor[Any] | None) -> tuple[int, int]:
    """How many messages were for open runs, and how many of those were new."""
    row = result.fetchone() if result else None
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
    """Failed runs notify all their tasks, which drop their state; ended runs have left them."""
    now_closed = set(closed)
    failed = [failure.run for failure in step.failed if failure.run in now_closed]
    waiting = {run_topic(pipeline) for id, (pipeline, _) in runs.items() if id in now_closed}
    waiting |= waiting_flows(connection, list(now_closed)) if now_closed else set()
    return waiting | (closing_topics(connection, failed) if failed else set())


_SQL = queries(__name__)
