"""Links between tasks of flows and the pipeline runs that they started.

A pipeline run is started and linked to its task in one transaction, under the task's claim. A
retried or resumed task therefore finds the runs that it started, and a sweep finds those that no
task needs.
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
    """A pipeline run that was started by a task."""

    run: RunInfo
    attempt: int
    """The attempt of the task that started it."""
    is_delivered: bool
    """Whether all of its sources have declared their chunks."""

    @property
    def is_unsuccessful(self) -> bool:
        """Whether it is closed without a result."""
        return self.run.state in {RunState.FAILED, RunState.CANCELLED}

    def is_spent(self, attempt: int) -> bool:
        """Whether it was unsuccessful in an earlier attempt: this attempt has to start another."""
        return self.is_unsuccessful and self.attempt < attempt


def submitted(
    connection: psycopg.Connection, it: Claim, pipeline: str, name: str
) -> SubmittedRun | None:
    """The run that a task started under a name; of a restored run, its successor."""
    parameters = {**it.identity, "pipeline": pipeline, "name": name}
    row = connection.execute(_SQL["submitted"].sql, parameters).fetchone()
    if row is None:
        return None
    attempt, is_delivered, *rest = row
    found = SubmittedRun(RunInfo.from_row(*rest), attempt, is_delivered)
    if not found.is_unsuccessful:
        return found
    return replace(found, run=successor_of(connection, found.run) or found.run)


def submit(
    connection: psycopg.Connection,
    it: Claim,
    pipeline: str,
    name: str,
    begin: Callable[[psycopg.Connection], RunInfo],
) -> SubmittedRun:
    """The run that a task started under a name, or starts now if its claim is valid."""
    with raised_sql_errors():
        connection.execute(_SQL["lock_flow"].sql, it.identity)
        connection.execute(_SQL["lock_task"].sql, it.identity)
    known = submitted(connection, it, pipeline, name)
    if known is not None and not known.is_spent(it.attempt):
        return known
    run = begin(connection)
    link = {"pipeline": pipeline, "name": name, "pipeline_run": run.id, "attempt": it.attempt}
    connection.execute(_SQL["link"].sql, {**it.identity, **link})
    crash_point("flow.submit.before_commit")
    return SubmittedRun(run, it.attempt, is_delivered=False)


def suspend_for(
    connection: psycopg.Connection, it: Claim, run: RunInfo, number: int, timeout: float | None
) -> str:
    """Suspend a task until a pipeline run that it started is closed."""
    link: dict[str, Any] = {"pipeline": run.pipeline, "name": run.name, "pipeline_run": run.id}
    parameters = {**it.identity, **link, "number": number, "timeout": timeout}
    with raised_sql_errors():
        row = connection.execute(_SQL["suspend"].sql, parameters).fetchone()
    assert row is not None, "a function returns a row"
    return str(row[0])


def sweep_pipelines(connection: psycopg.Connection) -> None:
    """Wake tasks whose pipeline runs are closed, and cancel pipeline runs that no task needs."""
    for *row, reason in connection.execute(_SQL["sweep"].sql).fetchall():
        close_run(connection, RunInfo.from_row(*row), RunState.CANCELLED, reason)


_SQL = queries(__name__)
