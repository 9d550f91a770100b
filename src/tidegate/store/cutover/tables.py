"""Tables of users: their shape, and their rows by ranges of the primary key.

Rows are transferred as text, as PostgreSQL writes and reads it, in Arrow columns: every type
arrives unchanged, and no row is handled individually.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.csv as arrow_csv
from psycopg import sql

from tidegate.errors import (
    CodeRefused,
    GeneratedKey,
    NoPrimaryKey,
    TableChanged,
    TypeRefused,
    UnknownTable,
    UnknownTableColumn,
    listed,
)
from tidegate.store.core.queries import queries
from tidegate.store.cutover.table_settings import plain_names, set_exact_output, set_read_only

Key = tuple[str, ...]
"""The primary key of a row, each column as text."""
BLOCK = 1 << 26
"""Least block size in bytes for Arrow, which corrupts rows longer than a block."""
MOST_TEXT = (1 << 31) - 1
TEXT_OF = {"boolean": "bool", "character": "bpchar", "bpchar": "bpchar", "inet": "inet"}
"""Types whose cast to text differs from their output; keys use the cast."""


@dataclass(frozen=True, slots=True)
class TableName:
    """The qualified name of a table or view.

    >>> str(TableName.parse("shop.articles")), str(TableName.parse("articles"))
    ('shop.articles', 'public.articles')
    """

    schema: str
    name: str

    @classmethod
    def parse(cls, text: str) -> TableName:
        """From `schema.name`; without a schema it is in `public`."""
        schema, dot, name = text.rpartition(".")
        return cls(schema if dot else "public", name)

    def beside(self, name: str) -> TableName:
        """A name in the same schema, unless it has a schema of its own."""
        return TableName.parse(name) if "." in name else TableName(self.schema, name)

    @property
    def sql(self) -> sql.Identifier:
        """As an identifier in a statement."""
        return sql.Identifier(self.schema, self.name)

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table, and its type as PostgreSQL writes it."""

    name: str
    type: str
    collation: str | None = None
    """Declared collation, quoted; None for the default of the type."""
    operators: str = field(default="pg_catalog", compare=False)
    """The schema of the operators by which a key is ordered."""
    type_owner: str = field(default="", compare=False)
    """The owner of its type; empty for a superuser or the reader itself."""
    checked_by: str | None = field(default=None, compare=False)
    """A domain within its type that such a role owns, and may attach code to."""


@dataclass(frozen=True, slots=True)
class TableShape:
    """The columns and the primary key of a table."""

    key: tuple[TableColumn, ...]
    columns: tuple[TableColumn, ...]
    """All columns, including the key, in the order of the table."""

    @property
    def key_first(self) -> tuple[str, ...]:
        """The names of all columns in reading order: the key first."""
        keys = [it.name for it in self.key]
        return *keys, *(it.name for it in self.columns if it.name not in keys)

    def check_types(self, table: str) -> None:
        """Raise `TypeRefused` for a column whose values run code of its type's owner as text."""
        for it in self.columns:
            if it.checked_by is not None:
                reason = f"reading it from text checks the domain {it.checked_by}"
                raise TypeRefused(table, it.name, it.type, reason)

    def only(self, names: Sequence[str], table: str) -> TableShape:
        """The shape reduced to these columns and the key."""
        known = {it.name for it in self.columns}
        for name in names:
            if name not in known:
                raise UnknownTableColumn(table, name, listed(sorted(known)))
        wanted = {*names, *(it.name for it in self.key)}
        return TableShape(self.key, tuple(it for it in self.columns if it.name in wanted))


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The rows after `low`, up to and including `high`; None: unbounded."""

    low: Key | None = None
    high: Key | None = None


@dataclass(frozen=True, slots=True)
class RangeDigest:
    """Number and checksum of the rows of a range."""

    rows: int
    checksum: str


def begin_reading(connection: psycopg.Connection, table: TableName, shape: TableShape) -> None:
    """Prepare this transaction for reading a table by a known shape.

    The owner may have replaced the table since then: raises `TableChanged`, `UnknownTable`,
    `TypeRefused` or `CodeRefused`.
    """
    hold(connection, table)
    set_read_only(connection)
    if shape_of(connection, table).key != shape.key:
        raise TableChanged(str(table))


def hold(connection: psycopg.Connection, table: TableName) -> None:
    """Lock a table against rewrites until this transaction ends; call before reading it.

    A statement that waits for `ALTER TABLE` may have looked at what is visible before it waited,
    and to it a table that was rewritten since then is empty.
    """
    connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(table.sql))


def shape_of(connection: psycopg.Connection, table: TableName) -> TableShape:
    """The shape of a table; generated columns are left out. Raises when it has no usable key.

    Raises `TypeRefused` for a key of a type whose owner could run code as the reader.
    """
    parameters = {
        "schema": table.schema,
        "name": table.name,
        "table": table.sql.as_string(connection),
    }
    with plain_names(connection):
        found = connection.execute(_SQL["columns"].sql, parameters).fetchall()
        code = connection.execute(_SQL["planned_code"].sql, parameters).fetchone()
    if not found:
        raise UnknownTable(str(table))
    if code:
        raise CodeRefused(str(table), *code)
    columns = tuple(TableColumn(*row[:6]) for row in found)
    places = [(place, it) for it, (*_, place, _) in zip(columns, found, strict=True) if place]
    if not places:
        raise NoPrimaryKey(str(table))
    for name, *_, is_generated in found:
        if is_generated:
            raise GeneratedKey(str(table), name)
    key = tuple(it for _, it in sorted(places, key=lambda it: it[0]))
    _check_key_types(table, key)
    return TableShape(key, columns)


def _check_key_types(table: TableName, key: Sequence[TableColumn]) -> None:
    """Keys are compared and read from text by the name of a type, which its owner may change."""
    for it in key:
        if it.type_owner:
            reason = f"it belongs to {it.type_owner}, who could attach code to comparing it"
            raise TypeRefused(str(table), it.name, it.type, reason)
        if it.operators != key[0].operators:
            reason = f"its operators are in {it.operators}, those of {key[0].name} elsewhere"
            raise TypeRefused(str(table), it.name, it.type, reason)


def owner_of_type(connection: psycopg.Connection, type_: str) -> str | None:
    """The owner of a type, unless it is a superuser, this role, or PostgreSQL itself."""
    row = connection.execute(_SQL["type_owner"].sql, {"type": type_}).fetchone()
    return row[0] if row else None


def bound_after(
    connection: psycopg.Connection, table: TableName, shape: TableShape, low: Key | None, rows: int
) -> Key | None:
    """The key that many rows after another one; None when there are fewer."""
    parameters = sql.SQL(
        "SELECT ARRAY[{texts}] FROM {table} WHERE {behind} ORDER BY {names} OFFSET {rows} LIMIT 1"
    ).format(
        texts=key_texts(shape),
        table=table.sql,
        behind=in_range(shape, KeyRange(low)),
        names=names_of(shape.key),
        rows=sql.Literal(rows - 1),
    )
    begin_reading(connection, table, shape)
    row = connection.execute(parameters).fetchone()
    return tuple(row[0]) if row else None


def bounds_within(
    connection: psycopg.Connection, table: TableName, shape: TableShape, within: KeyRange, rows: int
) -> list[Key]:
    """The keys that split a range into pieces of that many rows."""
    parameters = sql.SQL(
        "SELECT key FROM (SELECT ARRAY[{texts}] AS key, row_number() OVER (ORDER BY {names}) AS at"
        " FROM {table} WHERE {within}) AS it WHERE at % {rows} = 0 ORDER BY at"
    ).format(
        texts=key_texts(shape),
        names=names_of(shape.key),
        table=table.sql,
        within=in_range(shape, within),
        rows=sql.Literal(rows),
    )
    begin_reading(connection, table, shape)
    return [tuple(key) for (key,) in connection.execute(parameters)]


def digest(
    connection: psycopg.Connection,
    table: TableName,
    shape: TableShape,
    within: KeyRange,
    where: str,
) -> RangeDigest:
    """Number and checksum of the rows of a range that meet a condition."""
    parameters = sql.SQL(
        "SELECT count(*), coalesce(sum({checksum}::numeric), 0)::text"
        " FROM {table} WHERE {within} AND {where}"
    ).format(checksum=_checksum(shape), **_from(table, shape, within, where))
    begin_reading(connection, table, shape)
    row = connection.execute(parameters).fetchone()
    assert row is not None
    return RangeDigest(*row)


def checksums(
    connection: psycopg.Connection,
    table: TableName,
    shape: TableShape,
    within: KeyRange,
    where: str,
) -> dict[Key, int]:
    """The checksum of each row of a range that meets a condition, by key."""
    parameters = sql.SQL(
        "SELECT ARRAY[{key}], {checksum} FROM {table} WHERE {within} AND {where}"
    ).format(checksum=_checksum(shape), key=key_texts(shape), **_from(table, shape, within, where))
    begin_reading(connection, table, shape)
    return {tuple(key): value for key, value in connection.execute(parameters)}


def checksum_of(values: Iterable[str | None]) -> int:
    """The checksum of a row whose values are text, as rows are written: for any kind of target.

    >>> checksum_of(["7", None]) == checksum_of(["7", ""])
    False
    """
    text = "".join("-" if it is None else f"{len(it)}:{it}" for it in values)
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big", signed=True)


def copy_out(connection: psycopg.Connection, query: sql.Composed, names: Sequence[str]) -> pa.Table:
    """The result of a query, every value as text; `names` are its columns."""
    statement = sql.SQL("COPY ({}) TO STDOUT (FORMAT csv, FORCE_QUOTE *, ENCODING 'UTF8')")
    text = io.BytesIO()
    with connection.cursor() as cursor, cursor.copy(statement.format(query)) as copy:
        for block in copy:
            text.write(block)
    size = text.tell()
    if not size:
        return pa.table({name: pa.array([], pa.string()) for name in names})
    text.seek(0)
    return arrow_csv.read_csv(
        text,
        read_options=arrow_csv.ReadOptions(
            column_names=list(names), block_size=min(max(BLOCK, size + 1), MOST_TEXT)
        ),
        parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
        convert_options=arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def copy_in(
    connection: psycopg.Connection, table: sql.Composable, rows: pa.Table | pa.RecordBatch
) -> None:
    """Append rows to a table; every value is text that PostgreSQL reads as its column wants."""
    text = io.BytesIO()
    options = arrow_csv.WriteOptions(include_header=False, quoting_style="all_valid")
    arrow_csv.write_csv(rows, text, options)
    names = sql.SQL(", ").join(map(sql.Identifier, rows.schema.names))
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv, ENCODING 'UTF8')")
    set_exact_output(connection)
    with connection.cursor() as cursor, cursor.copy(statement.format(table, names)) as copy:
        copy.write(text.getbuffer())


def in_range(shape: TableShape, within: KeyRange, of: str = "") -> sql.Composable:
    """The condition that a row is in a range; `of` is what its table is called there."""
    parts = [
        sql.SQL("({}) {} ({})").format(
            sql.SQL(", ").join(_named(it, of) for it in shape.key),
            operator_of(shape.key[0], operator),
            key_values(shape, bound),
        )
        for operator, bound in ((">", within.low), ("<=", within.high))
        if bound is not None
    ]
    return sql.SQL(" AND ").join(parts) if parts else sql.SQL("true")


def operator_of(column: TableColumn, name: str) -> sql.Composed:
    """The operator by which the key is ordered, whatever else has its name."""
    return sql.SQL("OPERATOR({}.{})").format(sql.Identifier(column.operators), sql.SQL(name))


def names_of(columns: Iterable[TableColumn]) -> sql.Composed:
    """The names of columns, one after the other."""
    return sql.SQL(", ").join(sql.Identifier(it.name) for it in columns)


def key_values(shape: TableShape, key: Key) -> sql.Composed:
    """A key, each value as its column has it."""
    return sql.SQL(", ").join(
        sql.SQL("{}::{}").format(sql.Literal(value), sql.SQL(it.type))
        for it, value in zip(shape.key, key, strict=True)
    )


def key_texts(shape: TableShape, of: str = "") -> sql.Composed:
    """The columns of the key as text; `of` is what its table is called there.

    All are compared byte by byte: columns of several collations could not be, nor looked up. It is
    made by output functions: a cast may be the table owner's code, also where the type has changed
    since.
    """
    return sql.SQL(", ").join(
        sql.SQL('({}) COLLATE pg_catalog."C"').format(_text_of(it, _named(it, of)))
        for it in shape.key
    )


def _text_of(column: TableColumn, name: sql.Identifier) -> sql.Composed:
    text = sql.SQL("pg_catalog.format('%s', {})").format(name)
    plain = TEXT_OF.get(column.type.partition("(")[0])
    if plain is None:
        return text
    return sql.SQL("{}::pg_catalog.{}::pg_catalog.text").format(text, sql.SQL(plain))


def _named(column: TableColumn, of: str) -> sql.Identifier:
    return sql.Identifier(of, column.name) if of else sql.Identifier(column.name)


def _checksum(shape: TableShape) -> sql.Composed:
    """As `checksum_of`; format() gives values as COPY does, which a cast to text does not."""
    values = [
        sql.SQL("CASE WHEN {it} IS NULL THEN '-' ELSE {text} END").format(
            it=sql.Identifier(it.name), text=_with_length(it)
        )
        for it in shape.columns
    ]
    return sql.SQL(
        "('x' || encode(substring(sha256(convert_to({}, 'UTF8')) FOR 8), 'hex'))::bit(64)::bigint"
    ).format(sql.SQL(" || ").join(values))


def _with_length(column: TableColumn) -> sql.Composed:
    return sql.SQL("length(format('%s', {it})) || ':' || format('%s', {it})").format(
        it=sql.Identifier(column.name)
    )


def _from(table: TableName, shape: TableShape, within: KeyRange, where: str) -> dict[str, Any]:
    return {
        "table": table.sql,
        "within": in_range(shape, within),
        "where": sql.SQL(where),
    }


_SQL = queries(__name__)
