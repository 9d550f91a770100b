"""Runs: one client's data set each, from the moment it is begun until nothing of it is left.

    open ──▶ ended        its END was collected
         ──▶ cancelled    somebody asked for it
         ──▶ failed       it cannot be completed

A closed run stays closed: nothing more is appended to its lanes or read from them. Its name may be
used again at once, for another incarnation. Its rows are removed later, all of them together.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

import psycopg

from tidegate.errors import RunExists
from tidegate.store.queries import queries


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

    @classmethod
    def from_row(cls, *row: object) -> Run:
        """From the columns that every query lists in this order."""
        id, pipeline, name, incarnation, state = row
        assert isinstance(id, int)
        assert isinstance(incarnation, int)
        return cls(id, str(pipeline), str(name), incarnation, RunState(state))

    @property
    def key(self) -> str:
        """What messages call it: unlike its name, never used again."""
        return f"{self.name}#{self.incarnation}"


@dataclass(frozen=True, slots=True)
class LaneName:
    """Which way a lane goes; `input` is the number of the receiver's edge."""

    from_task: str
    to_task: str
    input: int = 0


def begin_run(
    connection: psycopg.Connection, pipeline: str, name: str, lanes: Iterable[LaneName]
) -> Run:
    """Open a run with all its lanes."""
    asked = {"pipeline": pipeline, "name": name}
    row = connection.execute(_SQL["begin_run"].sql, asked).fetchone() if name else None
    if row is None:
        raise RunExists(run=name)
    run, ways = Run.from_row(*row), list(lanes)
    connection.execute(
        _SQL["open_lanes"].sql,
        {
            "run": run.id,
            "from_tasks": [way.from_task for way in ways],
            "to_tasks": [way.to_task for way in ways],
            "inputs": [way.input for way in ways],
        },
    )
    return run


def latest_run(connection: psycopg.Connection, pipeline: str, name: str) -> Run | None:
    """The run that has this name now or had it last."""
    row = connection.execute(
        _SQL["latest_run"].sql, {"pipeline": pipeline, "name": name}
    ).fetchone()
    return Run.from_row(*row) if row else None


def close_run(connection: psycopg.Connection, run: Run, state: RunState) -> bool:
    """Close a run; False when it was closed before, whichever way."""
    assert state is not RunState.OPEN
    closed = connection.execute(_SQL["close"].sql, {"run": run.id, "state": state.value})
    return closed.rowcount == 1


def remove_closed_runs(connection: psycopg.Connection, seconds: float, limit: int = 100) -> int:
    """Remove runs that were closed this long ago, a few at a time; how many were removed."""
    removed = connection.execute(_SQL["remove_closed"].sql, {"seconds": seconds, "limit": limit})
    return removed.rowcount


_SQL = queries("runs")
