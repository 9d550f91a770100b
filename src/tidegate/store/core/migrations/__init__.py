"""Migrations: create the schema in an empty database and bring an older one up to date.

`schema.sql` beside this folder is migration 1, and the file to read. Later migrations are files
`NNNN_name.sql` in this folder, numbered from 2. Each is applied once, in a transaction of its own,
in the order of the numbers, and is recorded in `tidegate.migration`. Released files are never
edited. Functions, views and triggers are replaced as a whole: see `functions`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import psycopg

from tidegate.errors import SchemaTooNew
from tidegate.faults import crash_point
from tidegate.store.core.functions import create_functions
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
    """All migrations of this release, in order."""
    schema = files("tidegate.store.core").joinpath("schema.sql")
    later = (
        Migration(int(match[1]), match[2], file.read_bytes())
        for file in files(__name__).iterdir()
        if (match := FILE_NAME.fullmatch(file.name))
    )
    return (
        Migration(1, "schema", schema.read_bytes()),
        *sorted(later, key=lambda migration: migration.number),
    )


def migrate(connection: psycopg.Connection, database: str) -> None:
    """Apply missing migrations. Safe to call from several processes at once."""
    latest = migrations()[-1].number
    applied = current(connection)
    if applied > latest:
        raise SchemaTooNew(database, applied, latest)
    for migration in migrations():
        if migration.number > applied:
            _apply(connection, migration)
    create_functions(connection)


def current(connection: psycopg.Connection) -> int:
    """The number of the last applied migration; 0 for an empty database."""
    sql = queries(__name__)
    with connection.transaction():
        has_table = connection.execute(sql["has_table"].sql).fetchone()
        if has_table is None or not has_table[0]:
            return 0
        last = connection.execute(sql["last_applied"].sql).fetchone()
    return int(last[0]) if last else 0


def _apply(connection: psycopg.Connection, migration: Migration) -> None:
    sql = queries(__name__)
    with connection.transaction():
        connection.execute(sql["lock"].sql)
        if current(connection) >= migration.number:
            return
        connection.execute(migration.sql)
        connection.execute(sql["record"].sql, (migration.number, migration.name))
        crash_point("migration.before_commit")
