"""Runs: one client's data set each, from its start until its rows are removed.

    open ──▶ ended        its END was collected
         ──▶ cancelled    on request
         ──▶ failed       it cannot be completed; the first cause is kept

A closed run stays closed: nothing more is appended to its channels or read from them. Its name can
be reused at once, for the next incarnation. Its rows are removed later, all together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any
from uuid import UUID

import psycopg

from tidegate.errors import IdempotencyConflict, RunEnded, RunExists, UnknownRun
from tidegate.store.core.notifications import notify
from tidegate.store.core.queries import queries
from tidegate.store.core.text import storable
from tidegate.store.core.topics import pipelines_topic, run_topic, task_topic


def number_of(key: str) -> int:
    """The id of the run with this key.

    >>> number_of("march#17")
    17
    """
    return int(key.rpartition("#")[2])


class RunState(Enum):
    """The state of a run."""

    OPEN = "open"
    ENDED = "ended"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run as read from the database."""

    id: int
    pipeline: str
    name: str
    incarnation: int
    state: RunState
    cause: str | None = None
    """Why it failed or was cancelled, if known."""

    @classmethod
    def from_row(cls, *row: object) -> RunInfo:
        """From the columns that every query returns in this order."""
        id, pipeline, name, incarnation, state, cause = row
        assert isinstance(id, int)
        assert isinstance(incarnation, int)
        assert cause is None or isinstance(cause, str)
        return cls(id, str(pipeline), str(name), incarnation, RunState(state), cause)

    @property
    def key(self) -> str:
        """Identifies the run in messages; unlike its name, never reused."""
        return f"{self.name}#{self.id}"


@dataclass(frozen=True, slots=True)
class ChannelName:
    """The sender and receiver of a channel; `input` is the receiver's input edge."""

    from_task: str
    to_task: str
    input: int = 0


# ── starting ──


def begin_run(  # noqa: PLR0913  all but three have defaults
    connection: psycopg.Connection,
    pipeline: str,
    name: str,
    channels: Iterable[ChannelName],
    *,
    sources: Iterable[str] = (),
    plan: str = "",
    warn_after: float | None = None,
    deadline: float | None = None,
    request: UUID | None = None,
    body: str | None = None,
) -> RunInfo:
    """Open a run with all its channels and sources; bounds are in seconds from now, None for none.

    Repeated with the same `request`, it returns the same run; without one, a repetition raises
    `RunExists`. `body` is the digest of the request's body: the same request with another body
    raises `IdempotencyConflict`.
    """
    parameters = {
        "pipeline": pipeline,
        "name": name,
        "plan": plan,
        "warn_after": warn_after,
        "deadline": deadline,
        "request": request,
        "body": body,
    }
    row = connection.execute(_SQL["begin_run"].sql, parameters).fetchone() if name else None
    if row is None:
        return _run_of_request(connection, name, request, body)
    run = RunInfo.from_row(*row)
    _open_channels(connection, run, list(channels))
    connection.execute(_SQL["open_sources"].sql, {"run": run.id, "sources": list(sources)})
    return run


def _run_of_request(
    connection: psycopg.Connection, name: str, request: UUID | None, body: str | None
) -> RunInfo:
    row = connection.execute(_SQL["run_of_request"].sql, {"request": request}).fetchone()
    if row is None:
        raise RunExists(run=name)
    *columns, known_body = row
    run = RunInfo.from_row(*columns)
    if known_body != body and None not in (known_body, body):
        raise IdempotencyConflict(run=run.name)
    return run


def _open_channels(
    connection: psycopg.Connection, run: RunInfo, channels: Sequence[ChannelName]
) -> None:
    connection.execute(
        _SQL["open_channels"].sql,
        {
            "run": run.id,
            "from_tasks": [channel.from_task for channel in channels],
            "to_tasks": [channel.to_task for channel in channels],
            "inputs": [channel.input for channel in channels],
        },
    )


# ── reading ──


def find_run(connection: psycopg.Connection, pipeline: str, name: str) -> RunInfo | None:
    """The latest run with this name."""
    row = connection.execute(_SQL["find_run"].sql, {"pipeline": pipeline, "name": name}).fetchone()
    return RunInfo.from_row(*row) if row else None


def open_runs(connection: psycopg.Connection, pipeline: str) -> list[RunInfo]:
    """The open runs of a pipeline, the oldest first."""
    rows = connection.execute(_SQL["open_runs"].sql, {"pipeline": pipeline})
    return [RunInfo.from_row(*row) for row in rows]


def overdue_runs(connection: psycopg.Connection, pipeline: str) -> list[RunInfo]:
    """The open runs of a pipeline whose deadline has passed, by the server's clock."""
    rows = connection.execute(_SQL["overdue_runs"].sql, {"pipeline": pipeline})
    return [RunInfo.from_row(*row) for row in rows]


def late_runs(connection: psycopg.Connection, pipeline: str) -> list[RunInfo]:
    """The open runs of a pipeline whose warning time has passed."""
    rows = connection.execute(_SQL["late_runs"].sql, {"pipeline": pipeline})
    return [RunInfo.from_row(*row) for row in rows]


def plan_of(connection: psycopg.Connection, run: RunInfo) -> str:
    """The hash of the plan with which the run was started."""
    row = connection.execute(_SQL["plan_of"].sql, {"run": run.id}).fetchone()
    return str(row[0]) if row else ""


def lock(connection: psycopg.Connection, run: RunInfo) -> psycopg.Cursor[Any]:
    """Read the state and cause of a run and lock it until the commit."""
    return connection.execute(_SQL["lock"].sql, {"run": run.id})


def lock_open(connection: psycopg.Connection, run: RunInfo, source: str) -> None:
    """Raise `RunEnded` unless the run is open; locks it until the commit."""
    row = lock(connection, run).fetchone()
    if row is None:
        raise UnknownRun(run=run.name)
    state, cause = row
    if state != RunState.OPEN.value:
        raise RunEnded(run=run.name, source=source, how=state, cause=cause)


# ── closing ──


def close_run(
    connection: psycopg.Connection, run: RunInfo, state: RunState, cause: str | None = None
) -> bool:
    """Close a run and notify its tasks; False when it was closed before."""
    assert state is not RunState.OPEN
    stored = None if cause is None else storable(cause)
    parameters = {"run": run.id, "state": state.value, "cause": stored}
    closed = connection.execute(_SQL["close"].sql, parameters).rowcount
    if closed:
        notify(connection, closing_topics(connection, [run.id]))
    return closed == 1


def closing_topics(connection: psycopg.Connection, runs: Sequence[int]) -> set[str]:
    """The topics to notify when these runs are closed: their tasks, waiting clients and flows."""
    rows = connection.execute(_SQL["tasks_of"].sql, {"runs": list(runs)}).fetchall()
    tasks = {task_topic(pipeline, task) for pipeline, task in rows if task is not None}
    waiting = {run_topic(pipeline) for pipeline, _ in rows}
    return tasks | waiting | waiting_flows(connection, runs)


def waiting_flows(connection: psycopg.Connection, runs: Sequence[int]) -> set[str]:
    """The topics of flows with a task that started one of these runs."""
    flows = connection.execute(_SQL["flows_of"].sql, {"runs": list(runs)})
    return {pipelines_topic(flow) for (flow,) in flows}


def remove_closed_runs(connection: psycopg.Connection, seconds: float, limit: int = 100) -> int:
    """Remove up to `limit` runs that were closed this long ago; returns their number."""
    removed = connection.execute(_SQL["remove_closed"].sql, {"seconds": seconds, "limit": limit})
    return removed.rowcount


_SQL = queries(__name__)
