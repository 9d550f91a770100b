"""Runs of pipelines that tasks of flows have begun: found again by whoever goes on with the task.

A run of a pipeline is begun and linked to its task in one transaction, under the task's claim. So
a task that is tried again, after a crash or because its run was released, finds what it has begun;
and a sweep finds what nobody waits for any more, whoever has died.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import psycopg

from tidegate.faults import crash_point
from tidegate.store.checkpoints.restore import successor_of
from tidegate.store.core.queries import queries
from tidegate.store.flows.sql_errors import raised_sql_errors
from tidegate.store.flows.tasks import Claim
from tidegate.store.runs.runs import RunInfo, RunState, close_run


@dataclass(frozen=True, slots=True)
class SubmittedRun:
    """A run of a pipeline that a task has begun, as it was when it was read."""

    run: RunInfo
    attempt: int
    """At the task, that has begun it."""
    is_delivered: bool
    """Whether all of its sources are closed, so that nobody owes it anything."""

    @property
    def is_vain(self) -> bool:
        """Whether it is closed and gave nothing."""
        return self.run.state in {RunState.FAILED, RunState.CANCELLED}

    def is_spent(self, attempt: int) -> bool:
        """Whether it came to nothing in an earlier attempt, so that this one needs another."""
        return self.is_vain and self.attempt < attempt


def submitted(
    connection: psycopg.Connection, it: Claim, pipeline: str, name: str
) -> SubmittedRun | None:
    """What a task has begun under a name; of a run that was restored, the one that goes on."""
    asked = {**it.identity, "pipeline": pipeline, "name": name}
    row = connection.execute(_SQL["submitted"].sql, asked).fetchone()
    if row is None:
        return None
    attempt, is_delivered, *rest = row
    found = SubmittedRun(RunInfo.from_row(*rest), attempt, is_delivered)
    if not found.is_vain:
        return found
    return replace(found, run=successor_of(connection, found.run) or found.run)


def submit(
    connection: psycopg.Connection,
    it: Claim,
    pipeline: str,
    name: str,
    begin: Callable[[psycopg.Connection], RunInfo],
) -> SubmittedRun:
    """What a task has begun under a name, or what it begins now, if that is its claim's to do."""
    with raised_sql_errors():
        connection.execute(_SQL["lock_flow"].sql, it.identity)
        connection.execute(_SQL["hold_task"].sql, it.identity)
    known = submitted(connection, it, pipeline, name)
    if known is not None and not known.is_spent(it.attempt):
        return known
    run = begin(connection)
    its = {"pipeline": pipeline, "name": name, "pipeline_run": run.id, "attempt": it.attempt}
    connection.execute(_SQL["link"].sql, {**it.identity, **its})
    crash_point("flow.submit.before_commit")
    return SubmittedRun(run, it.attempt, is_delivered=False)


def suspend_for(
    connection: psycopg.Connection, it: Claim, run: RunInfo, number: int, timeout: float | None
) -> str:
    """Put a task aside until a run of a pipeline that it has begun is closed."""
    its: dict[str, Any] = {"pipeline": run.pipeline, "name": run.name, "pipeline_run": run.id}
    asked = {**it.identity, **its, "number": number, "timeout": timeout}
    with raised_sql_errors():
        row = connection.execute(_SQL["suspend"].sql, asked).fetchone()
    assert row is not None, "a function answers"
    return str(row[0])


def sweep_pipelines(connection: psycopg.Connection) -> None:
    """Wake tasks whose runs are closed, and cancel runs that no task waits for any more."""
    for *row, reason in connection.execute(_SQL["sweep"].sql).fetchall():
        close_run(connection, RunInfo.from_row(*row), RunState.CANCELLED, reason)


_SQL = queries(__name__)
