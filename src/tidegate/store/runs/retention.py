"""Retention in open runs: a run with checkpoints over months must not grow with its age.

Old checkpoints are retired together with the state, output and chunks that only they needed.
Messages are removed after they were processed. Each file that loses a reference by that is recorded
as unused in the same transaction. No other file of an open run is unused: one that was never
referenced may be about to be.
"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg

from tidegate.store.core.queries import queries
from tidegate.store.runs.runs import RunInfo

SETTLED = 60.0
"""Seconds after which no step with an uncertain commit is repeated."""
READ = 900.0
"""Seconds for which readers of a retired checkpoint can continue."""


def retire(connection: psycopg.Connection, run: RunInfo, retained: int) -> int:
    """Remove all but the last `retained` checkpoints, and what only those needed; how many.

    The last published one is kept, even when more unpublished ones follow it.
    """
    parameters = {"run": run.id, "retained": retained}
    row = connection.execute(_SQL["bounds"].sql, parameters).fetchone()
    before, oldest, recent = row or (None, None, None)
    if oldest is None:
        return 0
    bounds = {"before": 0 if before == oldest else before, "oldest": oldest, "recent": recent}
    parameters = {"run": run.id, **bounds}
    connection.execute(_SQL["record_unused"].sql, parameters)
    connection.execute(_SQL["drop_states"].sql, parameters)
    return connection.execute(_SQL["retire"].sql, parameters).rowcount


def prune(connection: psycopg.Connection, run: RunInfo, seconds: float = SETTLED) -> int:
    """Remove processed messages of a run; how many.

    Recent ones are kept: a step with an uncertain commit is repeated within seconds and must find
    the messages it has sent.
    """
    parameters = {"run": run.id, "seconds": seconds}
    row = connection.execute(_SQL["prune"].sql, parameters).fetchone()
    return int(row[0]) if row else 0


def record_unused(connection: psycopg.Connection, files: Sequence[tuple[int, str]]) -> None:
    """Record files that will never be referenced, each with its run."""
    parameters = {"runs": [run for run, _ in files], "files": [file for _, file in files]}
    connection.execute(_SQL["record"].sql, parameters)


def unused_files(
    connection: psycopg.Connection, limit: int = 10_000, seconds: float = READ
) -> list[tuple[int, str]]:
    """Files of open runs that lost a reference this long ago, each with its run."""
    return connection.execute(_SQL["unused"].sql, {"limit": limit, "seconds": seconds}).fetchall()


def forget_unused(connection: psycopg.Connection, checked: Sequence[tuple[int, str]]) -> None:
    """Forget files that were checked; one that loses another reference is recorded again."""
    runs, files = [run for run, _ in checked], [file for _, file in checked]
    connection.execute(_SQL["forget"].sql, {"runs": runs, "files": files})


_SQL = queries(__name__)
