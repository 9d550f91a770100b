"""The plans of runs, for those who restore one under another: what they consist of, by hash.

A run names its plan, and so does the manifest of each of its cuts. What is recorded is the text
that the hash is made from, so it can be compared with any other plan by whoever has that.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import psycopg

from tidegate.store.core.queries import queries
from tidegate.store.runs.runs import Run

MOST = 4_000_000
"""Characters of a plan that is recorded; a larger one is known by its hash alone."""


def record(connection: psycopg.Connection, plan: str, nodes: str) -> None:
    """Note what the plan of this hash consists of."""
    if len(nodes) <= MOST:
        connection.execute(_SQL["record"].sql, {"hash": plan, "nodes": nodes})


def recorded(connection: psycopg.Connection, plan: str) -> str | None:
    """What a plan consists of, if that was recorded."""
    row = connection.execute(_SQL["recorded"].sql, {"hash": plan}).fetchone()
    return str(row[0]) if row else None


@dataclass(frozen=True, slots=True)
class Served:
    """With which plan a pipeline was served last, and on how many shards."""

    plan: str
    shards: int


def note_served(connection: psycopg.Connection, pipeline: str, served: Served) -> None:
    """A pipeline is served with this plan from now on."""
    asked = {"pipeline": pipeline, "plan": served.plan, "shards": served.shards}
    connection.execute(_SQL["note_served"].sql, asked)


def served_last(connection: psycopg.Connection, pipeline: str) -> Served | None:
    """How a pipeline was served last; None if nobody ever has."""
    row = connection.execute(_SQL["served_last"].sql, {"pipeline": pipeline}).fetchone()
    return Served(*row) if row else None


def remove_unused(connection: psycopg.Connection, seconds: float) -> int:
    """Forget plans that nobody has served for so long, and no run or cut names; how many."""
    return connection.execute(_SQL["remove_unused"].sql, {"seconds": seconds}).rowcount


def ended_before(
    connection: psycopg.Connection, run: Run, number: int, tasks: Collection[str]
) -> list[str]:
    """Which of these tasks had ended before a cut: what they gave is given for good."""
    asked = {"run": run.id, "number": number, "tasks": list(tasks)}
    return [task for (task,) in connection.execute(_SQL["ended_before"].sql, asked)]


_SQL = queries(__name__)
