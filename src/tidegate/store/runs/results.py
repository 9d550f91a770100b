"""Results of runs, and removal of what closed runs no longer need.

The step that ends a run writes the results of all its sinks. After that the run's messages and all
files except those of its results have no reader: `reclaim` removes the rows, the sweeper removes
files without a reference.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import msgspec
import psycopg

from tidegate.dataflow import Batch
from tidegate.store.core.queries import queries
from tidegate.store.runs.runs import RunInfo


@dataclass(frozen=True, slots=True)
class SinkRows:
    """The result of one sink of a run."""

    rows: int
    batches: list[Batch]
    """File references and counts, decoded from JSON."""


def reload_run(connection: psycopg.Connection, run: RunInfo) -> RunInfo | None:
    """The current state of this run; None when it was removed."""
    row = connection.execute(_SQL["reload"].sql, {"run": run.id}).fetchone()
    return RunInfo.from_row(*row) if row else None


def results_of(connection: psycopg.Connection, run: RunInfo) -> dict[str, SinkRows]:
    """The results by sink: all sinks of a run that ended, none otherwise."""
    found = connection.execute(_SQL["results_of"].sql, {"run": run.id})
    return {
        sink: SinkRows(rows, msgspec.convert(batches, list[Batch])) for sink, rows, batches in found
    }


def rows_in(connection: psycopg.Connection, run: RunInfo) -> dict[str, int]:
    """The number of rows delivered by each source of a run."""
    return dict(connection.execute(_SQL["rows_in"].sql, {"run": run.id}).fetchall())


def publications(connection: psycopg.Connection) -> dict[str, int]:
    """The number of transactions that published each ended run, by run key; must be one."""
    rows = connection.execute(_SQL["publications"].sql)
    return {f"{name}#{id}": number for name, id, number in rows}


# ── removing ──


def unfinished_among(connection: psycopg.Connection, runs: Collection[int]) -> set[int]:
    """The runs that are open."""
    rows = connection.execute(_SQL["unfinished_among"].sql, {"runs": list(runs)})
    return {id for (id,) in rows}


def to_reclaim(connection: psycopg.Connection, limit: int = 100) -> list[RunInfo]:
    """Closed runs whose channels were not removed yet, the oldest first."""
    rows = connection.execute(_SQL["to_reclaim"].sql, {"limit": limit})
    return [RunInfo.from_row(*row) for row in rows]


def reclaim(connection: psycopg.Connection, run: RunInfo) -> bool:
    """Remove the channels and messages of a closed run; False if that was done before.

    Its results and sources stay until the run is removed.
    """
    if not connection.execute(_SQL["mark_reclaimed"].sql, {"run": run.id}).rowcount:
        return False
    connection.execute(_SQL["remove_channels"].sql, {"run": run.id})
    connection.execute(_SQL["remove_releases"].sql, {"run": run.id})
    return True


def files_named(connection: psycopg.Connection, runs: Collection[int]) -> set[str]:
    """The files of these runs that are still referenced; of a closed run only its results."""
    rows = connection.execute(_SQL["files_named"].sql, {"runs": list(runs)})
    return {file for (file,) in rows}


_SQL = queries(__name__)
