"""Results: what the sinks of a run gave, and what of a closed run may go.

The step that ends a run writes the results of all its sinks. After that the messages of the run,
and all files but those of its results, have no reader any more: `reclaim` removes the rows, and a
sweeper the files that nobody names.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import msgspec
import psycopg

from tidegate.dataflow import Batch
from tidegate.store.core.queries import queries
from tidegate.store.runs.runs import Run


@dataclass(frozen=True, slots=True)
class SinkRows:
    """What one sink of a run gave."""

    rows: int
    batches: list[Batch]
    """What names the files, as it was published and JSON gives it back."""


def look_again(connection: psycopg.Connection, run: Run) -> Run | None:
    """This very run as it is now, whoever has its name; None when it was removed."""
    row = connection.execute(_SQL["look_again"].sql, {"run": run.id}).fetchone()
    return Run.from_row(*row) if row else None


def results_of(connection: psycopg.Connection, run: Run) -> dict[str, SinkRows]:
    """What each sink gave; all sinks of a run that ended, none of any other."""
    found = connection.execute(_SQL["results_of"].sql, {"run": run.id})
    return {
        sink: SinkRows(rows, msgspec.convert(batches, list[Batch])) for sink, rows, batches in found
    }


def rows_in(connection: psycopg.Connection, run: Run) -> dict[str, int]:
    """How many rows each source of a run has delivered."""
    return dict(connection.execute(_SQL["rows_in"].sql, {"run": run.id}).fetchall())


def publications(connection: psycopg.Connection) -> dict[str, int]:
    """By how many transactions each run that ended was published, by its key; it should be one."""
    rows = connection.execute(_SQL["publications"].sql)
    return {f"{name}#{id}": number for name, id, number in rows}


# ── removing ──


def unfinished_among(connection: psycopg.Connection, runs: Collection[int]) -> set[int]:
    """Which of these runs are open."""
    rows = connection.execute(_SQL["unfinished_among"].sql, {"runs": list(runs)})
    return {id for (id,) in rows}


def to_reclaim(connection: psycopg.Connection, limit: int = 100) -> list[Run]:
    """Closed runs that still have their channels, the oldest first."""
    rows = connection.execute(_SQL["to_reclaim"].sql, {"limit": limit})
    return [Run.from_row(*row) for row in rows]


def reclaim(connection: psycopg.Connection, run: Run) -> bool:
    """Remove the channels of a closed run with all their messages; False if there was nothing to
    do.

    Its results, and what is known of its sources, stay until the run is removed.
    """
    if not connection.execute(_SQL["note_reclaimed"].sql, {"run": run.id}).rowcount:
        return False
    connection.execute(_SQL["remove_channels"].sql, {"run": run.id})
    connection.execute(_SQL["remove_releases"].sql, {"run": run.id})
    return True


def files_named(connection: psycopg.Connection, runs: Collection[int]) -> set[str]:
    """The files of these runs that anything still names; all others have no reader any more.

    Of a closed run only its results count.
    """
    rows = connection.execute(_SQL["files_named"].sql, {"runs": list(runs)})
    return {file for (file,) in rows}


_SQL = queries(__name__)
