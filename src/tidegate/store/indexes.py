"""Indexes in PostgreSQL: tables with versioned rows and full text, and the views that show them.

A row is written with its version and never overwrites a newer one; a row that is gone stays as a
mark with its version, so that an older write does not bring it back. An alias is a view over one
index: whoever reads it sees one or the other, at any moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

import psycopg
import pyarrow as pa
from psycopg import errors, sql

from tidegate.errors import AliasBusy, AliasDiffers, IndexDiffers
from tidegate.store.change_log import DELETED, VERSION, Lag
from tidegate.store.queries import queries
from tidegate.store.tables import Column, Shape, TableName, copy_in, shape_of

DOCUMENT = "tidegate_document"
SHOWN = "document"
"""What readers of an alias know the searchable text of a row by."""
LIVE = f"NOT {DELETED}"
LOCK_BOUND = "500ms"
"""For which readers of an alias wait at most behind a switch that waits for others."""


@dataclass(frozen=True, slots=True)
class Search:
    """The columns whose text can be searched, and by the rules of which language."""

    columns: tuple[str, ...]
    language: str = "simple"


@dataclass(frozen=True, slots=True)
class Noted:
    """What is kept about a switch: who made it, and how far the index was then."""

    by: str
    run: int | None = None
    """Of the flow that made it; None: a person did."""
    lag: Lag | None = None


@dataclass(frozen=True, slots=True)
class Switch:
    """That an alias was made to stand for an index."""

    alias: str
    index: str
    previous: str | None
    run: int | None
    by: str
    pending: int | None
    staleness: float | None
    at: datetime


def create_index(
    connection: psycopg.Connection,
    index: TableName,
    shape: Shape,
    search: Search,
    alias: TableName,
) -> None:
    """Create an index for rows of this shape; nothing happens when it is there as it should be."""
    if is_there(connection, index):
        check_owner(connection, index, alias)
        _check_same(connection, index, shape)
        return
    columns = [
        sql.SQL("{} {}{}").format(
            sql.Identifier(it.name),
            sql.SQL(it.type),
            sql.SQL(f" COLLATE {it.collation}" if it.collation else ""),
        )
        for it in shape.columns
    ]
    parts = {
        "schema": sql.Identifier(index.schema),
        "index": index.sql,
        "columns": sql.SQL(", ").join(columns),
        "key": _names(shape.key),
        "language": sql.Literal(search.language),
        "text": _text(search),
        "name": sql.Identifier(f"{index.name[:50]}_document"),
        "identity": sql.Literal(f"{_owned_by(alias)}{uuid4()}"),
    }
    for name in ("create_schema", "create_index", "index_document", "note_identity"):
        connection.execute(_composed(name, parts))


def is_there(connection: psycopg.Connection, index: TableName) -> bool:
    """Whether something has this name."""
    asked = {"schema": index.schema, "name": index.name}
    return connection.execute(_SQL["is_there"].sql, asked).fetchone() is not None


def identity(connection: psycopg.Connection, index: TableName) -> str:
    """What tells an index from all others, also from one of the same name that was before it."""
    return _identity(connection, index)[1]


def check_owner(connection: psycopg.Connection, index: TableName, alias: TableName) -> None:
    """Raise `IndexDiffers` when this is no index, or one that was made for another alias."""
    found = identity(connection, index)
    if not found.startswith(_owned_by(alias)):
        raise IndexDiffers(str(index), f"it was not made for {alias}")


def is_empty(connection: psycopg.Connection, index: TableName) -> bool:
    """Whether nothing was ever written to an index."""
    row = connection.execute(_composed("is_empty", {"index": index.sql})).fetchone()
    return row is not None and bool(row[0])


def _owned_by(alias: TableName) -> str:
    return f"tidegate: an index of {alias}, "


def _identity(connection: psycopg.Connection, index: TableName) -> tuple[int, str]:
    asked = {"schema": index.schema, "name": index.name}
    row = connection.execute(_SQL["identity"].sql, asked).fetchone()
    if row is None:
        raise IndexDiffers(str(index), "it is no index")
    return row[0], row[1] or ""


def index_shape(connection: psycopg.Connection, index: TableName) -> Shape:
    """The columns of an index that rows have to bring."""
    found = shape_of(connection, index)
    own = {VERSION, DELETED}
    return Shape(found.key, tuple(it for it in found.columns if it.name not in own))


def write(
    connection: psycopg.Connection,
    index: TableName,
    shape: Shape,
    rows: pa.Table | pa.RecordBatch,
    expected: str | None = None,
) -> int:
    """Write rows with their versions; answers how many were not older than what is there.

    Versions mean something to the index for which rows were read, so whoever comes late finds
    another identity than the one it expects, and writes nothing: `IndexDiffers`.
    """
    connection.execute(_composed("hold", {"index": index.sql}))
    oid, found = _identity(connection, index)
    if expected not in (None, found):
        raise IndexDiffers(str(index), "it was dropped and made again since these rows were read")
    incoming = sql.Identifier("pg_temp", f"tidegate_incoming_{oid}")
    own = [sql.Identifier(it) for it in (VERSION, DELETED)]
    names = [*(sql.Identifier(it.name) for it in shape.columns), *own]
    parts = {
        "incoming": incoming,
        "index": index.sql,
        "key": _names(shape.key),
        "names": sql.SQL(", ").join(names),
        "values": sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(it) for it in names),
    }
    connection.execute(_composed("make_incoming", parts))
    copy_in(connection, incoming, rows)
    return connection.execute(_composed("write", parts)).rowcount


def check_alias(connection: psycopg.Connection, alias: TableName, index: TableName) -> None:
    """Raise `AliasDiffers` when readers of an alias would not find what they have now."""
    wanted = _view_columns(connection, alias)
    _check_replaceable(connection, alias, index)
    if wanted is None:
        return
    given = [*((it.name, it.type) for it in index_shape(connection, index).columns)]
    given = [*_in_order(given, wanted), (SHOWN, "tsvector")]
    missing = [f"it has no {name} {type_}" for name, type_ in wanted if (name, type_) not in given]
    if missing:
        raise AliasDiffers(str(alias), str(index), missing[0])


def _check_replaceable(connection: psycopg.Connection, alias: TableName, index: TableName) -> None:
    """What somebody made by hand under the name of an alias is theirs."""
    asked = {"schema": alias.schema, "name": alias.name}
    row = connection.execute(_SQL["kind"].sql, asked).fetchone()
    if row and not row[0]:
        raise AliasDiffers(str(alias), str(index), "what has that name is no view")
    if row and current(connection, alias) is None:
        raise AliasDiffers(str(alias), str(index), "it is a view that shows no index")


def switch(
    connection: psycopg.Connection, alias: TableName, index: TableName, noted: Noted
) -> bool:
    """Let an alias stand for an index, and note it; whether it stood for another before.

    Readers wait behind whoever waits for the alias, so that is not done for long: `AliasBusy`.
    """
    before = current(connection, alias)
    if before == str(index):
        return False
    connection.execute(f"SET LOCAL lock_timeout = '{LOCK_BOUND}'".encode())
    try:
        connection.execute(_view(connection, alias, index))
    except errors.LockNotAvailable as busy:
        raise AliasBusy(str(alias)) from busy
    except errors.InvalidTableDefinition as differs:
        raise AliasDiffers(str(alias), str(index), str(differs).partition("\n")[0]) from differs
    connection.execute(b"SET LOCAL lock_timeout = 0")
    note_switch(connection, str(alias), str(index), before, noted)
    return True


def current(connection: psycopg.Connection, alias: TableName) -> str | None:
    """The index that an alias stands for; None when there is no such alias."""
    asked = {"schema": alias.schema, "name": alias.name, "document": DOCUMENT}
    row = connection.execute(_SQL["current"].sql, asked).fetchone()
    return str(TableName(*row)) if row else None


def note_switch(
    connection: psycopg.Connection, alias: str, index: str, before: str | None, noted: Noted
) -> None:
    """Keep that an alias stands for another index since now."""
    lag = noted.lag
    asked = {
        "alias": alias, "index": index, "previous": before, "run": noted.run, "by": noted.by,
        "pending": lag.changes if lag else None, "staleness": lag.seconds if lag else None,
    }  # fmt: skip
    connection.execute(_SQL["note_switch"].sql, asked)


def switches(connection: psycopg.Connection, alias: str, most: int = 20) -> list[Switch]:
    """What an alias stood for, the last first."""
    rows = connection.execute(_SQL["switches"].sql, {"alias": alias, "most": most})
    return [Switch(*row) for row in rows]


def drop_index(connection: psycopg.Connection, index: TableName, alias: TableName) -> None:
    """Remove an index that was made for this alias, and that none stands for."""
    if not is_there(connection, index):
        return
    check_owner(connection, index, alias)
    try:
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(index.sql))
    except errors.DependentObjectsStillExist as used:
        raise IndexDiffers(str(index), str(used).partition("\n")[0]) from used


def _check_same(connection: psycopg.Connection, index: TableName, shape: Shape) -> None:
    found = shape_of(connection, index)
    has = {(it.name, it.type) for it in found.columns}
    wanted = {*((it.name, it.type) for it in shape.columns), (VERSION, "bigint")}
    if wanted - has:
        name, type_ = min(wanted - has)
        raise IndexDiffers(str(index), f"it is there and has no column {name} {type_}")
    if found.key != shape.key:
        raise IndexDiffers(str(index), "it is there with another primary key")


def _view(connection: psycopg.Connection, alias: TableName, index: TableName) -> sql.Composed:
    """Readers find the columns they have where they were; others come behind them."""
    names = [it.name for it in index_shape(connection, index).columns]
    columns = {it: sql.Identifier(it) for it in names if it != SHOWN}
    shown = sql.SQL("{} AS {}").format(sql.Identifier(DOCUMENT), sql.Identifier(SHOWN))
    wanted = _view_columns(connection, alias) or []
    ordered = _in_order([(it, "") for it in [*columns, SHOWN]], wanted)
    return _composed(
        "create_view",
        {
            "schema": sql.Identifier(alias.schema),
            "alias": alias.sql,
            "columns": sql.SQL(", ").join(columns.get(name, shown) for name, _ in ordered),
            "index": index.sql,
            "live": sql.SQL(LIVE),
        },
    )


def _in_order(
    given: Sequence[tuple[str, str]], wanted: Sequence[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Columns in the order in which readers have them, and those behind that they do not know."""
    places = {name: at for at, (name, _) in enumerate(wanted)}
    return sorted(given, key=lambda it: places.get(it[0], len(places)))


def _view_columns(connection: psycopg.Connection, alias: TableName) -> list[tuple[str, str]] | None:
    asked = {"schema": alias.schema, "name": alias.name}
    rows = connection.execute(_SQL["view_columns"].sql, asked).fetchall()
    return [(name, type_) for name, type_ in rows] or None


def _text(search: Search) -> sql.Composable:
    if not search.columns:
        return sql.Literal("")
    return sql.SQL(" || ' ' || ").join(
        sql.SQL("coalesce({}::text, '')").format(sql.Identifier(it)) for it in search.columns
    )


def _names(columns: Sequence[Column]) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(it.name) for it in columns)


def _composed(name: str, parts: Mapping[str, sql.Composable]) -> sql.Composed:
    return sql.SQL(_SQL[name].sql.decode()).format(**parts)


_SQL = queries("indexes")
