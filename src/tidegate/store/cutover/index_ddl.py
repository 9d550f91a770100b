"""Creates indexes: tables with the columns of another one, a version, and a searchable document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import uuid4

import psycopg
from psycopg import sql

from tidegate.errors import ColumnReserved, IndexDiffers, TypeRefused
from tidegate.store.core.queries import queries
from tidegate.store.cutover.change_log import VERSION
from tidegate.store.cutover.indexes import SHOWN, check_usable, exists, owned_by, set_comment
from tidegate.store.cutover.tables import TableName, TableShape, names_of, owner_of_type, shape_of

OWN = "tidegate_"
"""Prefix of the columns that an index adds."""


@dataclass(frozen=True, slots=True)
class SearchColumns:
    """The searchable columns, and the language of their text."""

    columns: tuple[str, ...]
    language: str = "simple"


def create_index(
    connection: psycopg.Connection,
    index: TableName,
    shape: TableShape,
    search: SearchColumns,
    alias: TableName,
) -> None:
    """Create an index for rows of this shape; checks an existing one."""
    _check_names(index, shape)
    _check_searchable(connection, index, shape, search)
    parts = _parts(index, shape, search)
    if exists(connection, index):
        check_usable(connection, index, alias)
        _check_same(connection, index, shape)
        _check_search(connection, index, parts)
        return
    for name in ("create_schema", "create_index", "index_document"):
        connection.execute(_SQL[name].composed(parts))
    set_comment(connection, index, f"{owned_by(alias)}{uuid4()}")


def _parts(index: TableName, shape: TableShape, search: SearchColumns) -> dict[str, sql.Composable]:
    columns = [
        sql.SQL("{} {}{}").format(
            sql.Identifier(it.name),
            sql.SQL(it.type),
            sql.SQL(f" COLLATE {it.collation}" if it.collation else ""),
        )
        for it in shape.columns
    ]
    return {
        "schema": sql.Identifier(index.schema),
        "index": index.sql,
        "columns": sql.SQL(", ").join(columns),
        "key": names_of(shape.key),
        "language": sql.Literal(search.language),
        "text": _text(search),
    }


def _check_names(index: TableName, shape: TableShape) -> None:
    for it in shape.columns:
        if it.name == SHOWN or it.name.startswith(OWN):
            raise ColumnReserved(str(index), it.name)


def _check_searchable(
    connection: psycopg.Connection, index: TableName, shape: TableShape, search: SearchColumns
) -> None:
    """A document is built by casts to text, with the rights of the role that writes the index."""
    for it in shape.columns:
        owner = owner_of_type(connection, it.type) if it.name in search.columns else None
        if owner is not None:
            reason = f"a cast to text is searched, and {owner} could attach code to it"
            raise TypeRefused(str(index), it.name, it.type, reason)


def _check_same(connection: psycopg.Connection, index: TableName, shape: TableShape) -> None:
    found = shape_of(connection, index)
    has = {(it.name, it.type) for it in found.columns}
    wanted = {*((it.name, it.type) for it in shape.columns), (VERSION, "bigint")}
    if wanted - has:
        name, type_ = min(wanted - has)
        raise IndexDiffers(str(index), f"it exists and has no column {name} {type_}")
    if found.key != shape.key:
        raise IndexDiffers(str(index), "it exists with another primary key")


def _check_search(
    connection: psycopg.Connection, index: TableName, parts: Mapping[str, sql.Composable]
) -> None:
    """Compare expressions as PostgreSQL prints them, by means of a temporary table."""
    connection.execute(_SQL["create_expected"].composed(parts))
    parameters = {"schema": index.schema, "name": index.name}
    if connection.execute(_SQL["searches_alike"].sql, parameters).fetchone() is None:
        raise IndexDiffers(str(index), "it exists and searches other columns, or by other rules")
    connection.execute(_SQL["drop_expected"].sql)


def _text(search: SearchColumns) -> sql.Composable:
    if not search.columns:
        return sql.Literal("")
    return sql.SQL(" || ' ' || ").join(
        sql.SQL("coalesce({}::text, '')").format(sql.Identifier(it)) for it in search.columns
    )


_SQL = queries(__name__)
