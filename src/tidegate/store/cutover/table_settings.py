"""Transaction settings for reading and writing tables of users."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

EXACT = {
    "DateStyle": "ISO, YMD",
    "TimeZone": "UTC",
    "IntervalStyle": "postgres",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "lc_monetary": "C",
    "row_security": "off",
}
"""Every value has one text representation, and no row is hidden by row security."""
OWN_NAMES = "pg_catalog, pg_temp"
"""The search path that uses only PostgreSQL's own functions and operators."""
READING = {"constraint_exclusion": "off", "transaction_read_only": "on"}
"""For reading a table of another role: code of its owner cannot write."""
NO_VIEWS = {"restrict_nonsystem_relation_kind": "view, foreign-table"}
"""A view in place of a table is not read, as its functions would run as the reader."""


def set_exact_output(connection: psycopg.Connection) -> None:
    """Use the same text representation of values as all other transactions of a cutover."""
    _set(connection, {**EXACT, "search_path": OWN_NAMES})


def set_read_only(connection: psycopg.Connection) -> None:
    """Like `set_exact_output`, for a transaction that only reads a table of another role."""
    views = NO_VIEWS if _can_refuse_views(connection.info.server_version) else {}
    _set(connection, {**EXACT, "search_path": OWN_NAMES, **READING, **views})


@contextmanager
def waiting_at_most(connection: psycopg.Connection, bound: str) -> Iterator[None]:
    """Wait for a lock in the block no longer than the bound; raises `LockNotAvailable`."""
    connection.execute(f"SET LOCAL lock_timeout = '{bound}'".encode())
    yield
    connection.execute(b"SET LOCAL lock_timeout TO DEFAULT")


@contextmanager
def plain_names(connection: psycopg.Connection) -> Iterator[None]:
    """In the block, PostgreSQL qualifies all names but its own with their schema."""
    query = "SELECT current_setting('search_path'), set_config('search_path', %s, true)"
    row = connection.execute(query, (OWN_NAMES,)).fetchone()
    assert row is not None
    yield
    connection.execute("SELECT set_config('search_path', %s, true)", (row[0],))


def _set(connection: psycopg.Connection, settings: dict[str, str]) -> None:
    """Change settings until the transaction ends."""
    calls = sql.SQL(", ").join(
        sql.SQL("pg_catalog.set_config({}, {}, true)").format(sql.Literal(name), sql.Literal(value))
        for name, value in settings.items()
    )
    connection.execute(sql.SQL("SELECT {}").format(calls))


def _can_refuse_views(version: int) -> bool:
    """Whether a release of PostgreSQL has the setting of `NO_VIEWS`.

    >>> [_can_refuse_views(it) for it in (150007, 150008, 160003, 160004, 170000, 180001)]
    [False, True, False, True, True, True]
    """
    return version >= {15: 150008, 16: 160004}.get(version // 10_000, 170000)
