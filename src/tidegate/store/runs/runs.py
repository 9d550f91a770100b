"""Runs: one client's data set each, from the moment it is begun until nothing of it is left.

    open ──▶ ended        its END was collected
         ──▶ cancelled    somebody asked for it
         ──▶ failed       it cannot be completed; the first cause is kept

A closed run stays closed: nothing more is appended to its channels or read from them. Its name may
be used again at once, for another incarnation. Its rows are removed later, all of them together.
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
    """The id of the run that messages call by this key.

    >>> number_of("march#17")
    17
    """
    return int(key.rpartition("#")[2])


class RunState(Enum):
    """What has become of a run."""

    OPEN = "open"
    ENDED = "ended"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Run:
    """A run as it was when it was read."""

    id: int
    pipeline: str
    name: str
    incarnation: int
    state: RunState
    cause: str | None = None
    """Why it failed or was cancelled, if that was said."""

    @classmethod
    def from_row(cls, *row: object) -> Run:
        """From the columns that every query lists in this order."""
        id, pipeline, name, incarnation, state, cause = row
        assert isinstance(id, int)
        assert isinstance(incarnation, int)
        assert cause is None or isinstance(cause, str)
        return cls(id, str(pipeline), str(name), incarnation, RunState(state), cause)

    @property
    def key(self) -> str:
        """What messages call it: unlike its name, never used again."""
        return f"{self.name}#{self.id}"


@dataclass(frozen=True, slots=True)
class ChannelName:
    """Which way a channel goes; `input` is the number of the receiver's edge."""

    from_task: str
    to_task: str
    input: int = 0


# ── beginning ──


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
) -> Run:
    """Open a run with all its channels and sources; the bounds are seconds from here, None is none.

    Asked again under the same `request`, it answers the run that was begun then. Without one, a
    repetition finds the name taken. `body` is a digest of what is asked for: the same request with
    another one raises `IdempotencyConflict`.
    """
    asked = {
        "pipeline": pipeline,
        "name": name,
        "plan": plan,
        "warn_after": warn_after,
        "deadline": deadline,
        "request": request,
        "body": body,
    }
    row = connection.execute(_SQL["begin_run"].sql, asked).fetchone() if name else None
    if row is None:
        return _begun_before(connection, name, request, body)
    run = Run.from_row(*row)
    _open_channels(connection, run, list(channels))
    connection.execute(_SQL["open_sources"].sql, {"run": run.id, "sources": list(sources)})
    return run


def _begun_before(
    connection: psycopg.Connection, name: str, request: UUID | None, body: str | None
) -> Run:
    row = connection.execute(_SQL["begun_before"].sql, {"request": request}).fetchone()
    if row is None:
        raise RunExists(run=name)
    *columns, asked = row
    run = Run.from_row(*columns)
    if asked != body and None not in (asked, body):
        raise IdempotencyConflict(run=run.name)
    return run


def _open_channels(
    connection: psycopg.Connection, run: Run, channels: Sequence[ChannelName]
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


# ── looking ──


def find_run(connection: psycopg.Connection, pipeline: str, name: str) -> Run | None:
    """The run that has this name now or had it last."""
    row = connection.execute(_SQL["find_run"].sql, {"pipeline": pipeline, "name": name}).fetchone()
    return Run.from_row(*row) if row else None


def open_runs(connection: psycopg.Connection, pipeline: str) -> list[Run]:
    """The open runs of a pipeline, the oldest first."""
    rows = connection.execute(_SQL["open_runs"].sql, {"pipeline": pipeline})
    return [Run.from_row(*row) for row in rows]


def overdue_runs(connection: psycopg.Connection, pipeline: str) -> list[Run]:
    """The open runs of a pipeline whose deadline has passed, by the server's clock."""
    rows = connection.execute(_SQL["overdue_runs"].sql, {"pipeline": pipeline})
    return [Run.from_row(*row) for row in rows]


def tardy_runs(connection: psycopg.Connection, pipeline: str) -> list[Run]:
    """The open runs of a pipeline whose warning threshold has passed."""
    rows = connection.execute(_SQL["tardy_runs"].sql, {"pipeline": pipeline})
    return [Run.from_row(*row) for row in rows]


def plan_of(connection: psycopg.Connection, run: Run) -> str:
    """What was given as the run's plan when it was begun."""
    row = connection.execute(_SQL["plan_of"].sql, {"run": run.id}).fetchone()
    return str(row[0]) if row else ""


def hold(connection: psycopg.Connection, run: Run) -> psycopg.Cursor[Any]:
    """Ask for the state and cause of a run, which stays as it is until the commit."""
    return connection.execute(_SQL["hold"].sql, {"run": run.id})


def hold_open(connection: psycopg.Connection, run: Run, source: str) -> None:
    """Raise `RunEnded` unless the run is open, and keep it open until the commit."""
    row = hold(connection, run).fetchone()
    if row is None:
        raise UnknownRun(run=run.name)
    state, cause = row
    if state != RunState.OPEN.value:
        raise RunEnded(run=run.name, source=source, how=state, cause=cause)


# ── closing ──


def close_run(
    connection: psycopg.Connection, run: Run, state: RunState, cause: str | None = None
) -> bool:
    """Close a run and tell its tasks; False when it was closed before, whichever way."""
    assert state is not RunState.OPEN
    stored = None if cause is None else storable(cause)
    asked = {"run": run.id, "state": state.value, "cause": stored}
    closed = connection.execute(_SQL["close"].sql, asked).rowcount
    if closed:
        notify(connection, closing_topics(connection, [run.id]))
    return closed == 1


def closing_topics(connection: psycopg.Connection, runs: Sequence[int]) -> set[str]:
    """Who is told when these runs are closed: their tasks, and those who wait for their end.

    Flows are among these where a task of theirs has begun one of the runs.
    """
    found = connection.execute(_SQL["tasks_of"].sql, {"runs": list(runs)}).fetchall()
    tasks = {task_topic(pipeline, task) for pipeline, task in found if task is not None}
    waiting = {run_topic(pipeline) for pipeline, _ in found}
    return tasks | waiting | waiting_flows(connection, runs)


def waiting_flows(connection: psycopg.Connection, runs: Sequence[int]) -> set[str]:
    """The topics of flows with a task that has begun one of these runs."""
    flows = connection.execute(_SQL["flows_of"].sql, {"runs": list(runs)})
    return {pipelines_topic(flow) for (flow,) in flows}


def remove_closed_runs(connection: psycopg.Connection, seconds: float, limit: int = 100) -> int:
    """Remove runs that were closed this long ago, a few at a time; how many were removed."""
    removed = connection.execute(_SQL["remove_closed"].sql, {"seconds": seconds, "limit": limit})
    return removed.rowcount


_SQL = queries(__name__)
