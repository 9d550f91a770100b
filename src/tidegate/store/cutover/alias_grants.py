"""Options of an alias, and the read privileges on the index that it shows.

A view reads its index as its owner, or with `security_invoker` as each reader. A switch therefore
grants the readers of the previous index, and no others, access to the next one.
"""

from __future__ import annotations

import psycopg
from psycopg import sql

from tidegate.errors import AliasDiffers
from tidegate.store.core.queries import queries
from tidegate.store.cutover.tables import TableName


def view_options(connection: psycopg.Connection, alias: TableName) -> sql.Composable:
    """The options of a view as SQL, as replacing a view would reset them."""
    parameters = {"alias": _quoted(connection, alias)}
    found = connection.execute(_SQL["options"].sql, parameters).fetchall()
    if not found:
        return sql.SQL("")
    options = (
        sql.SQL("{} = {}").format(sql.Identifier(name), sql.Literal(value)) for name, value in found
    )
    return sql.SQL(" WITH ({})").format(sql.SQL(", ").join(options))


def check_row_security(
    connection: psycopg.Connection, alias: TableName, before: TableName | None, index: TableName
) -> None:
    """Raise `AliasDiffers` when a switch would show rows that row security hides."""
    if before and _is_row_secured(connection, before) and not _is_row_secured(connection, index):
        reason = f"{before} has row security and it has none, so give it the same policies"
        raise AliasDiffers(str(alias), str(index), reason)


def keep_rights(
    connection: psycopg.Connection, alias: TableName, before: TableName | None, index: TableName
) -> None:
    """Keep the read privileges of an alias."""
    parameters = {
        "alias": _quoted(connection, alias),
        "index": _quoted(connection, index),
        "before": _quoted(connection, before) if before else "",
    }
    for query in ("owner_without", "readers"):
        for (reader,) in connection.execute(_SQL[query].sql, parameters).fetchall():
            connection.execute(_grant(index, reader))


def _grant(index: TableName, reader: str | None) -> sql.Composed:
    """Without a name, to PUBLIC."""
    whom = sql.Identifier(reader) if reader else sql.SQL("PUBLIC")
    return _SQL["grant"].composed({"index": index.sql, "reader": whom})


def _is_row_secured(connection: psycopg.Connection, index: TableName) -> bool:
    parameters = {"index": _quoted(connection, index)}
    return connection.execute(_SQL["is_row_secured"].sql, parameters).fetchone() is not None


def _quoted(connection: psycopg.Connection, name: TableName) -> str:
    return name.sql.as_string(connection)


_SQL = queries(__name__)
