"""What of an open run nobody needs any more; a run that is cut for months must not grow with it.

Old cuts are retired, and with them the states, outputs and chunks that only they needed. Messages
go when they have had their effect. Every file that loses a name by that is noted here, in the same
transaction. Nothing else of an open run is ever garbage: a file that never had a name may be about
to get one.
"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg

from tidegate.store.core.queries import queries
from tidegate.store.runs.runs import Run

SETTLED = 60.0
"""Seconds after which nobody repeats a step that may have been committed."""
READ = 900.0
"""Seconds for which whoever has begun to read a cut may go on, although it was retired since."""


def retire(connection: psycopg.Connection, run: Run, retained: int) -> int:
    """Forget all checkpoints before the last few cuts, and what only they needed; how many.

    The last one that sinks show stays, however many came behind it.
    """
    asked = {"run": run.id, "retained": retained}
    row = connection.execute(_SQL["bounds"].sql, asked).fetchone()
    before, oldest, recent = row or (None, None, None)
    if oldest is None:
        return 0
    bounds = {"before": 0 if before == oldest else before, "oldest": oldest, "recent": recent}
    asked = {"run": run.id, **bounds}
    connection.execute(_SQL["note_retired"].sql, asked)
    connection.execute(_SQL["drop_states"].sql, asked)
    return connection.execute(_SQL["retire"].sql, asked).rowcount


def prune(connection: psycopg.Connection, run: Run, seconds: float = SETTLED) -> int:
    """Remove messages of a run that have had their effect; how many.

    A step whose commit was in doubt is done again within seconds, and finds what it has sent.
    """
    asked = {"run": run.id, "seconds": seconds}
    row = connection.execute(_SQL["prune"].sql, asked).fetchone()
    return int(row[0]) if row else 0


def note(connection: psycopg.Connection, files: Sequence[tuple[int, str]]) -> None:
    """Files of runs, each with its run, that will never have a name."""
    asked = {"runs": [run for run, _ in files], "files": [file for _, file in files]}
    connection.execute(_SQL["note"].sql, asked)


def noted(
    connection: psycopg.Connection, limit: int = 10_000, seconds: float = READ
) -> list[tuple[int, str]]:
    """Files of open runs that lost a name this long ago, each with its run."""
    return connection.execute(_SQL["noted"].sql, {"limit": limit, "seconds": seconds}).fetchall()


def forget(connection: psycopg.Connection, seen: Sequence[tuple[int, str]]) -> None:
    """These were looked at; one that loses another name is noted again."""
    runs, files = [run for run, _ in seen], [file for _, file in seen]
    connection.execute(_SQL["forget"].sql, {"runs": runs, "files": files})


_SQL = queries(__name__)
