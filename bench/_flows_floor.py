"""The floor under the flows benchmark: what PostgreSQL itself claims and deletes.

Rows without anything that makes a task of them: no fencing, no result, no retries, no counters.
One connection takes them in the order of their numbers and commits each time.
"""

from __future__ import annotations

from itertools import repeat

import psycopg

from bench._flows_side import Rate, timed

TABLE = b"CREATE TABLE IF NOT EXISTS floor (id bigint PRIMARY KEY, payload jsonb NOT NULL)"
FILL = b"INSERT INTO floor SELECT number, '0.0' FROM generate_series(1, %s) AS number"
TAKE = b"""
DELETE FROM floor WHERE id IN (
    SELECT id FROM floor ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED)
RETURNING id, payload
"""


def floor(url: str, rows: int, at_once: int) -> Rate:
    """Rows that are claimed and deleted, so many in each transaction."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(TABLE)
        connection.execute(b"TRUNCATE floor")
        connection.execute(FILL, [rows])
        connection.execute(b"VACUUM ANALYZE floor")
        return timed(rows, lambda: _take(connection, rows, at_once))


def _take(connection: psycopg.Connection, rows: int, at_once: int) -> None:
    for size in repeat(at_once, rows // at_once):
        found = connection.execute(TAKE, [size]).fetchall()
        assert len(found) == size
