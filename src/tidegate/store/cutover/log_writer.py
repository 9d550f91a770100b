"""The role that writes logs of changes: triggers run with its rights, and it has no others.

The owner of a table controls code that runs within its triggers' statements: casts, types, index
expressions. Such code gains only the rights to append to a log and to read keys.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
from psycopg import errors, sql

from tidegate.errors import UnknownTable, WriterTooStrong
from tidegate.store.core.queries import queries
from tidegate.store.cutover.tables import TableName

log = logging.getLogger(__name__)

WRITER = "tidegate_log_writer"


@dataclass(frozen=True, slots=True)
class Rights:
    """The owner of a table, and the rights of the connected role."""

    owner: str
    is_owner_superuser: bool
    is_superuser: bool
    role: str
    may_hand_over: bool
    """Whether it can transfer trigger functions to the writer."""


def rights(connection: psycopg.Connection, table: TableName) -> Rights:
    """The rights of the connected role for a table."""
    parameters = {"writer": WRITER, "table": table.sql.as_string(connection)}
    row = connection.execute(_SQL["facts"].sql, parameters).fetchone()
    if row is None:
        raise UnknownTable(str(table))
    return Rights(*row)


def ensure_writer(connection: psycopg.Connection, found: Rights) -> None:
    """Create the role if it is missing; `WriterTooStrong` if an unrelated role has its name."""
    row = connection.execute(_SQL["rights"].sql, {"writer": WRITER}).fetchone()
    if row is None:
        _create(connection, found)
    elif row[0] is not None:
        raise WriterTooStrong(WRITER, row[0])


def _create(connection: psycopg.Connection, found: Rights) -> None:
    parts = {"writer": sql.Identifier(WRITER)}
    try:
        with (
            connection.transaction()
        ):  # roles are shared by all databases: another process may create it too
            connection.execute(_SQL["create"].composed(parts))
            if not found.is_superuser:
                connection.execute(_SQL["join"].composed(parts))
    except (errors.DuplicateObject, errors.UniqueViolation):
        log.info("the role %s was created by another process", WRITER)


def warn_of_superuser(table: TableName, found: Rights) -> None:
    """Warn if the owner of a table could gain more than its own rights."""
    if found.is_superuser and not found.is_owner_superuser:
        log.warning(
            "%s belongs to %s and is read by the superuser %s: give Tidegate a role that is no"
            " superuser, so that code of a table's owner can never run as one",
            table,
            found.owner,
            found.role,
        )


def restrict_function(
    connection: psycopg.Connection, parts: dict[str, sql.Composable], found: Rights
) -> None:
    """Reduce the rights and callers of a log's function to the necessary ones."""
    names = {**parts, "owner": sql.Identifier(found.owner), "writer": sql.Identifier(WRITER)}
    steps = ["close_function", "open_function"]
    if found.may_hand_over:
        steps += ["open_schema", "hand_over", "close_schema", "let_write"]
    for name in steps:
        connection.execute(_SQL[name].composed(names))


def let_read_keys(
    connection: psycopg.Connection, tables: Sequence[TableName], key: sql.Composable
) -> None:
    """Let the writer read the keys of rows removed by TRUNCATE of these tables."""
    for it in tables:
        parts = {
            "writer": sql.Identifier(WRITER),
            "table_schema": sql.Identifier(it.schema),
            "table": it.sql,
            "key": key,
        }
        for name in ("let_reach", "let_read"):
            connection.execute(_SQL[name].composed(parts))


_SQL = queries(__name__)
