"""Suspects: runs that may be what a lost worker process was lost by, and how many each has cost.

While no worker is lost, nothing is written here. A lease that is taken from a worker that never
released it means that the worker was lost. The first time that makes suspects of all runs with
unread messages at that task. A suspect is processed alone in its process, under a mark
(`begin_trial`): a worker that is lost under a mark is lost by that run, and by no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg

from tidegate.store.core.leases import Lease, acquire
from tidegate.store.core.queries import queries
from tidegate.store.core.text import storable


@dataclass(frozen=True, slots=True)
class LostWith:
    """A run that a worker was lost with while it processed nothing else."""

    run: int
    name: str
    task: str
    error: str | None
    """What the worker reported before its end, if it could."""
    losses: int
    """All workers that this run has cost."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A task that was taken, and what that says about its last worker."""

    lease: Lease
    suspects: dict[int, int]
    """By run how many workers it has cost."""
    lost_worker: str | None = None
    """The last worker, if it was lost."""
    lost_with: tuple[LostWith, ...] = ()


def take_task(
    connection: psycopg.Connection, pipeline: str, task: str, wanted: Lease
) -> Taken | None:
    """Acquire the lease of a task; a last owner that never released it was lost with it.

    The first task that is taken from a lost worker counts the loss.
    """
    asked = {"kind": wanted.kind, "key": wanted.key}
    row = connection.execute(_SQL["last_owner"].sql, asked).fetchone()
    lease = acquire(connection, wanted.kind, wanted.key, wanted.owner, wanted.seconds)
    if lease is None:
        return None
    lost = row[0] if row and row[0] != wanted.owner else None
    lost_with = _lost(connection, lost, pipeline, task) if lost else ()
    return Taken(lease, _suspects(connection, pipeline, task), lost, lost_with)


def _lost(
    connection: psycopg.Connection, worker: str, pipeline: str, task: str
) -> tuple[LostWith, ...]:
    counted = connection.execute(_SQL["count_losses"].sql, {"worker": worker}).rowcount
    rows = connection.execute(_SQL["lost_with"].sql, {"worker": worker}).fetchall()
    if not rows:
        connection.execute(_SQL["suspect_all"].sql, {"pipeline": pipeline, "task": task})
    return tuple(LostWith(*row) for row in rows) if counted else ()


def _suspects(connection: psycopg.Connection, pipeline: str, task: str) -> dict[int, int]:
    rows = connection.execute(_SQL["suspects_of"].sql, {"pipeline": pipeline, "task": task})
    return dict(rows.fetchall())


def begin_trial(
    connection: psycopg.Connection, worker: str, run: int, tasks: Sequence[str]
) -> None:
    """Mark a run as the only one that a worker processes."""
    asked = {"worker": worker, "run": run, "tasks": list(tasks)}
    connection.execute(_SQL["begin_trial"].sql, asked)


def end_trial(connection: psycopg.Connection, worker: str, run: int, tasks: Sequence[str]) -> None:
    """The worker has survived it, so the run is no suspect in these tasks any more."""
    asked = {"worker": worker, "run": run, "tasks": list(tasks)}
    connection.execute(_SQL["end_trial"].sql, asked)


def drop_trials(connection: psycopg.Connection, worker: str) -> None:
    """The process lives although its worker's name is given up: its marks mean nothing."""
    connection.execute(_SQL["drop_trials"].sql, {"worker": worker})


def report_loss(connection: psycopg.Connection, worker: str, error: str) -> None:
    """Store what ends this worker with what it processes alone."""
    connection.execute(_SQL["report"].sql, {"worker": worker, "error": storable(error)})


_SQL = queries(__name__)
