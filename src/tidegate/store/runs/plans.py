"""The contents of plans by hash, compared when a run is restored under another plan.

A run names its plan, and so does the manifest of each of its checkpoints. The recorded text is the
one that the hash is computed from.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import psycopg

from tidegate.store.core.queries import queries
from tidegate.store.runs.runs import RunInfo

MOST = 4_000_000
"""Longest recorded plan in characters; a longer one is identified by its hash only."""


def record(connection: psycopg.Connection, plan: str, nodes: str) -> None:
    """Record the contents of a plan under its hash."""
    if len(nodes) <= MOST:
        connection.execute(_SQL["record"].sql, {"hash": plan, "nodes": nodes})


def recorded(connection: psycopg.Connection, plan: str) -> str | None:
    """The contents of a plan, if recorded."""
    row = connection.execute(_SQL["recorded"].sql, {"hash": plan}).fetchone()
    return str(row[0]) if row else None


@dataclass(frozen=True, slots=True)
class ServedPlan:
    """The plan with which a pipeline was served last, and its number of shards."""

    plan: str
    shards: int


def record_served_plan(connection: psycopg.Connection, pipeline: str, served: ServedPlan) -> None:
    """Record the plan with which a pipeline is served."""
    parameters = {"pipeline": pipeline, "plan": served.plan, "shards": served.shards}
    connection.execute(_SQL["record_served"].sql, parameters)


def last_served_plan(connection: psycopg.Connection, pipeline: str) -> ServedPlan | None:
    """The plan with which a pipeline was served last; None if it never was."""
    row = connection.execute(_SQL["last_served"].sql, {"pipeline": pipeline}).fetchone()
    return ServedPlan(*row) if row else None


def remove_unused(connection: psycopg.Connection, seconds: float) -> int:
    """Remove plans not served for this long and not named by a run or checkpoint; how many."""
    return connection.execute(_SQL["remove_unused"].sql, {"seconds": seconds}).rowcount


def ended_before(
    connection: psycopg.Connection, run: RunInfo, number: int, tasks: Collection[str]
) -> list[str]:
    """The tasks that had ended before a checkpoint: their output is final."""
    parameters = {"run": run.id, "number": number, "tasks": list(tasks)}
    return [task for (task,) in connection.execute(_SQL["ended_before"].sql, parameters)]


_SQL = queries(__name__)
