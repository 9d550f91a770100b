"""Numbered migrations: from an empty database to the schema of this version, step by step.

A migration is a file `NNNN_what_it_brings.sql`, applied once, in one transaction, in the order
of the numbers. Files that were released are never edited. `schema.sql` beside this folder is
where they lead, for people to read; a test proves that it is. What is replaced rather than changed
step by step (functions, views, triggers) is in `functions`, and made last.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import psycopg

from tidegate.errors import SchemaTooNew
from tidegate.faults import crash_point
from tidegate.store.core.functions import make_functions
from tidegate.store.core.queries import queries

FILE_NAME = re.compile(r"(\d{4})_(\w+)\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema."""

    number: int
    name: str
    sql: bytes


@cache
def migrations() -> tuple[Migration, ...]:
    """All migrations this version knows, in order."""
    found = (
        Migration(int(match[1]), match[2], file.read_bytes())
        for file in files(__name__).iterdir()
        if (match := FILE_NAME.fullmatch(file.name))
    )
    return tuple(sorted(found, key=lambda migration: migration.number))


def migrate(connection: psycopg.Connection, database: str) -> None:
    """Apply what is missing. Several processes may do so at once; each step happens once."""
    known = migrations()[-1].number
    applied = current(connection)
    if applied > known:
        raise SchemaTooNew(database, applied, known)
    for migration in migrations():
        if migration.number > applied:
            _apply(connection, migration)
    make_functions(connection)


def current(connection: psycopg.Connection) -> int:
    """The number of the last migration that was applied; 0 for none."""
    asked = queries(__name__)
    with connection.transaction():
        there = connection.execute(asked["is_begun"].sql).fetchone()
        if there is None or not there[0]:
            return 0
        last = connection.execute(asked["last_applied"].sql).fetchone()
    return int(last[0]) if last else 0


def _apply(connection: psycopg.Connection, migration: Migration) -> None:
    asked = queries(__name__)
    with connection.transaction():
        connection.execute(asked["take_turn"].sql)
        if current(connection) >= migration.number:
            return
        connection.execute(migration.sql)
        connection.execute(asked["note"].sql, (migration.number, migration.name))
        crash_point("migration.before_commit")
