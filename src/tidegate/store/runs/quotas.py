"""What the runs of one client take up; their names begin alike."""

from __future__ import annotations

import psycopg

from tidegate.store.core.queries import queries


def open_runs_like(connection: psycopg.Connection, beginning: str, pipeline: str, name: str) -> int:
    """How many open runs have names that begin like this, besides the one of this name."""
    asked = {"beginning": beginning, "pipeline": pipeline, "name": name}
    return _number(connection, "open_runs_like", asked)


def open_bytes_like(connection: psycopg.Connection, beginning: str) -> int:
    """The bytes of all chunks of open runs whose names begin like this."""
    return _number(connection, "open_bytes_like", {"beginning": beginning})


def _number(connection: psycopg.Connection, query: str, asked: dict[str, str]) -> int:
    (number,) = connection.execute(_SQL[query].sql, asked).fetchone() or (0,)
    return int(number)


_SQL = queries(__name__)
