"""Resource use of one client: its runs have names with a common prefix."""

from __future__ import annotations

import psycopg

from tidegate.store.core.queries import queries


def open_runs_like(connection: psycopg.Connection, prefix: str, pipeline: str, name: str) -> int:
    """The number of open runs with this name prefix, except for one run."""
    parameters = {"prefix": prefix, "pipeline": pipeline, "name": name}
    return _number(connection, "open_runs_like", parameters)


def open_bytes_like(connection: psycopg.Connection, prefix: str) -> int:
    """The size of all chunks of open runs with this name prefix, in bytes."""
    return _number(connection, "open_bytes_like", {"prefix": prefix})


def _number(connection: psycopg.Connection, query: str, parameters: dict[str, str]) -> int:
    (number,) = connection.execute(_SQL[query].sql, parameters).fetchone() or (0,)
    return int(number)


_SQL = queries(__name__)
