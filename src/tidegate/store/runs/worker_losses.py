"""Finds the run that causes worker processes to be lost.

Nothing is written here until a worker is lost. Acquiring a lease that its last owner never released
means that this worker was lost. The first loss isolates all runs with unread messages at that task.
An isolated run is processed alone in its process, and that is recorded (`begin_isolation`): if the
worker is lost meanwhile, this run is the cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg

from tidegate.store.core.leases import Lease, acquire
from tidegate.store.core.queries import queries
from tidegate.store.core.text import storable


@dataclass(frozen=True, slots=True)
class WorkerLoss:
    """A run that was processed alone when a worker was lost."""

    run: int
    name: str
    task: str
    error: str | None
    """Reported by the worker before it ended, if possible."""
    losses: int
    """Number of workers lost by this run."""


@dataclass(frozen=True, slots=True)
class TaskAcquisition:
    """An acquired task, and whether its last worker was lost."""

    lease: Lease
    isolated_runs: dict[int, int]
    """The number of lost workers by run, for runs to be processed alone."""
    lost_worker: str | None = None
    """The last owner, if it was lost."""
    lost_with: tuple[WorkerLoss, ...] = ()


def acquire_task(
    connection: psycopg.Connection, pipeline: str, task: str, request: Lease
) -> TaskAcquisition | None:
    """Acquire the lease of a task; a last owner that never released it was lost.

    The first task acquired from a lost worker counts the loss.
    """
    parameters = {"kind": request.kind, "key": request.key}
    row = connection.execute(_SQL["last_owner"].sql, parameters).fetchone()
    lease = acquire(connection, request.kind, request.key, request.owner, request.seconds)
    if lease is None:
        return None
    lost = row[0] if row and row[0] != request.owner else None
    lost_with = _count_loss(connection, lost, pipeline, task) if lost else ()
    return TaskAcquisition(lease, _isolated_runs(connection, pipeline, task), lost, lost_with)


def _count_loss(
    connection: psycopg.Connection, worker: str, pipeline: str, task: str
) -> tuple[WorkerLoss, ...]:
    counted = connection.execute(_SQL["count_losses"].sql, {"worker": worker}).rowcount
    rows = connection.execute(_SQL["lost_with"].sql, {"worker": worker}).fetchall()
    if not rows:
        connection.execute(_SQL["isolate_all"].sql, {"pipeline": pipeline, "task": task})
    return tuple(WorkerLoss(*row) for row in rows) if counted else ()


def _isolated_runs(connection: psycopg.Connection, pipeline: str, task: str) -> dict[int, int]:
    rows = connection.execute(_SQL["isolated_runs_of"].sql, {"pipeline": pipeline, "task": task})
    return dict(rows.fetchall())


def begin_isolation(
    connection: psycopg.Connection, worker: str, run: int, tasks: Sequence[str]
) -> None:
    """Record that a worker processes this run and no other."""
    parameters = {"worker": worker, "run": run, "tasks": list(tasks)}
    connection.execute(_SQL["begin_isolation"].sql, parameters)


def end_isolation(
    connection: psycopg.Connection, worker: str, run: int, tasks: Sequence[str]
) -> None:
    """Record that the worker has processed the run: it is no longer isolated in these tasks."""
    parameters = {"worker": worker, "run": run, "tasks": list(tasks)}
    connection.execute(_SQL["end_isolation"].sql, parameters)


def drop_isolations(connection: psycopg.Connection, worker: str) -> None:
    """Remove the records of a worker whose process continues under another name."""
    connection.execute(_SQL["drop_isolations"].sql, {"worker": worker})


def report_loss(connection: psycopg.Connection, worker: str, error: str) -> None:
    """Store the error that ends this worker with the run it processes alone."""
    connection.execute(_SQL["report"].sql, {"worker": worker, "error": storable(error)})


_SQL = queries(__name__)
