"""How long tasks aligned the barriers of a run's checkpoints, and for which upstream task."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg

from tidegate.store.core.queries import queries
from tidegate.store.runs.runs import RunInfo


@dataclass(frozen=True, slots=True)
class TaskAlignment:
    """The alignment of one checkpoint at one task."""

    number: int
    task: str
    waited: float
    """Seconds from the first to the last copy of the barrier."""
    last: str
    """The upstream task that delivered the last copy."""


def alignments_of(connection: psycopg.Connection, run: RunInfo) -> list[TaskAlignment]:
    """The alignments of all retained checkpoints, oldest first; also of tasks with one input."""
    rows = connection.execute(_SQL["alignments_of"].sql, {"run": run.id})
    return [TaskAlignment(*row) for row in rows]


_SQL = queries(__name__)
