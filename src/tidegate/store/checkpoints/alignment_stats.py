"""How long tasks held the barriers of a run's cuts, and for whom; for those who tune a pipeline."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg

from tidegate.store.core.queries import queries
from tidegate.store.runs.runs import RunInfo


@dataclass(frozen=True, slots=True)
class TaskAlignment:
    """The barrier of one cut at one task."""

    number: int
    task: str
    waited: float
    """Seconds from the first to the last copy."""
    last: str
    """Who brought the last copy."""


def alignments_of(connection: psycopg.Connection, run: RunInfo) -> list[TaskAlignment]:
    """Of all cuts of a run that are remembered, the oldest first; tasks with one input included."""
    rows = connection.execute(_SQL["alignments_of"].sql, {"run": run.id})
    return [TaskAlignment(*row) for row in rows]


_SQL = queries(__name__)
