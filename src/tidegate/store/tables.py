"""Tables of users: their shape, and their rows by ranges of the primary key.

Rows travel as text, exactly as PostgreSQL writes and reads it, in the columns of Arrow tables: a
column of any type arrives as it was, and no row is ever handled alone.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.csv as arrow_csv
from psycopg import sql

from tidegate.errors import GeneratedKey, NoPrimaryKey, UnknownTable, UnknownTableColumn, listed
from tidegate.store.queries import queries

Key = tuple[str, ...]
"""The primary key of a row, each column as text."""
BLOCK = 1 << 26
"""Bytes of text that Arrow reads at once, at least: it spoils a row that is longer than a block."""
MOST_TEXT = (1 << 31) - 1
EXACT = {
    "DateStyle": "ISO, YMD",
    "TimeZone": "UTC",
    "IntervalStyle": "postgres",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "lc_monetary": "C",
    "row_security": "off",
}
"""Under which a value has one text, whoever writes or reads it; and no row is left out unseen."""


@dataclass(frozen=True, slots=True)
class TableName:
    """Where a table or view is.

    >>> str(TableName.parse("shop.articles")), str(TableName.parse("articles"))
    ('shop.articles', 'public.articles')
    """

    schema: str
    name: str

    @classmethod
    def parse(cls, text: str) -> TableName:
        """As people write it; without a schema it is in `public`."""
        schema, dot, name = text.rpartition(".")
        return cls(schema if dot else "public", name)

    def beside(self, name: str) -> TableName:
        """Another one in the same schema, unless its own is named."""
        return TableName.parse(name) if "." in name else TableName(self.schema, name)

    @property
    def sql(self) -> sql.Identifier:
        """For a statement."""
        return sql.Identifier(self.schema, self.name)

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table, and its type as PostgreSQL writes it."""

    name: str
    type: str
    collation: str | None = None
    """The one that it is declared with, quoted; None for the usual one of its type."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns of a table and which of them identify a row."""

    key: tuple[Column, ...]
    columns: tuple[Column, ...]
    """All of them, those of the key included, in the order of the table."""

    @property
    def key_first(self) -> tuple[str, ...]:
        """The names of all columns, those of the key before the others: so rows are read."""
        keys = [it.name for it in self.key]
        return *keys, *(it.name for it in self.columns if it.name not in keys)

    def only(self, names: Sequence[str], table: str) -> Shape:
        """The same with these columns, and with the key in any case."""
        known = {it.name for it in self.columns}
        for name in names:
            if name not in known:
                raise UnknownTableColumn(table, name, listed(sorted(known)))
        wanted = {*names, *(it.name for it in self.key)}
        return Shape(self.key, tuple(it for it in self.columns if it.name in wanted))


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The rows behind one key, up to and with another; None: from the first, to the last."""

    low: Key | None = None
    high: Key | None = None


@dataclass(frozen=True, slots=True)
class Digest:
    """What the rows of a range come to: their number, and a sum that depends on every value."""

    rows: int
    checksum: str


def be_exact(connection: psycopg.Connection) -> None:
    """Let values have the same text in this transaction as in all others of a cutover."""
    settings = sql.SQL(", ").join(
        sql.SQL("set_config({}, {}, true)").format(sql.Literal(name), sql.Literal(value))
        for name, value in EXACT.items()
    )
    connection.execute(sql.SQL("SELECT {}").format(settings))


@contextmanager
def waiting_at_most(connection: psycopg.Connection, bound: str) -> Iterator[None]:
    """In the block no lock is waited for any longer: `LockNotAvailable`."""
    connection.execute(f"SET LOCAL lock_timeout = '{bound}'".encode())
    yield
    connection.execute(b"SET LOCAL lock_timeout TO DEFAULT")


def hold(connection: psycopg.Connection, table: TableName) -> None:
    """Let nobody rewrite a table until this transaction ends; to be called before it is read.

    A statement that waits for `ALTER TABLE` may have looked at what is visible before it waited,
    and to it a table that was rewritten since then is empty.
    """
    connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(table.sql))


def shape_of(connection: psycopg.Connection, table: TableName) -> Shape:
    """The shape of a table; generated columns are left out. Raises when it has no usable key."""
    asked = {"schema": table.schema, "name": table.name}
    found = connection.execute(_SQL["columns"].sql, asked).fetchall()
    if not found:
        raise UnknownTable(str(table))
    columns = tuple(Column(*row[:3]) for row in found)
    places = [(place, it) for it, (*_, place, _) in zip(columns, found, strict=True) if place]
    if not places:
        raise NoPrimaryKey(str(table))
    for name, *_, is_generated in found:
        if is_generated:
            raise GeneratedKey(str(table), name)
    return Shape(tuple(it for _, it in sorted(places, key=lambda it: it[0])), columns)


def bound_after(
    connection: psycopg.Connection, table: TableName, shape: Shape, low: Key | None, rows: int
) -> Key | None:
    """The key so many rows behind another one; None when there are fewer."""
    asked = sql.SQL(
        "SELECT ARRAY[{texts}] FROM {table} WHERE {behind} ORDER BY {names} OFFSET {rows} LIMIT 1"
    ).format(
        texts=key_texts(shape),
        table=table.sql,
        behind=in_range(shape, KeyRange(low)),
        names=names_of(shape.key),
        rows=sql.Literal(rows - 1),
    )
    _begin_reading(connection, table)
    row = connection.execute(asked).fetchone()
    return tuple(row[0]) if row else None


def bounds_within(
    connection: psycopg.Connection, table: TableName, shape: Shape, within: KeyRange, rows: int
) -> list[Key]:
    """The keys that cut a range into pieces of so many rows."""
    asked = sql.SQL(
        "SELECT key FROM (SELECT ARRAY[{texts}] AS key, row_number() OVER (ORDER BY {names}) AS at"
        " FROM {table} WHERE {within}) AS it WHERE at % {rows} = 0 ORDER BY at"
    ).format(
        texts=key_texts(shape),
        names=names_of(shape.key),
        table=table.sql,
        within=in_range(shape, within),
        rows=sql.Literal(rows),
    )
    _begin_reading(connection, table)
    return [tuple(key) for (key,) in connection.execute(asked)]


def digest(
    connection: psycopg.Connection, table: TableName, shape: Shape, within: KeyRange, where: str
) -> Digest:
    """What the rows of a range come to that fulfil a condition."""
    asked = sql.SQL(
        "SELECT count(*), coalesce(sum({checksum}::numeric), 0)::text"
        " FROM {table} WHERE {within} AND {where}"
    ).format(checksum=_checksum(shape), **_from(table, shape, within, where))
    _begin_reading(connection, table)
    row = connection.execute(asked).fetchone()
    assert row is not None
    return Digest(*row)


def checksums(
    connection: psycopg.Connection, table: TableName, shape: Shape, within: KeyRange, where: str
) -> dict[Key, int]:
    """The checksum of every row of a range that fulfils a condition, by its key."""
    asked = sql.SQL(
        "SELECT ARRAY[{key}], {checksum} FROM {table} WHERE {within} AND {where}"
    ).format(checksum=_checksum(shape), key=key_texts(shape), **_from(table, shape, within, where))
    _begin_reading(connection, table)
    return {tuple(key): value for key, value in connection.execute(asked)}


def checksum_of(values: Iterable[str | None]) -> int:
    """The checksum of a row whose values are text, as rows are written: for any kind of target.

    >>> checksum_of(["7", None]) == checksum_of(["7", ""])
    False
    """
    text = "".join("-" if it is None else f"{len(it)}:{it}" for it in values)
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big", signed=True)


def copy_out(connection: psycopg.Connection, query: sql.Composed, names: Sequence[str]) -> pa.Table:
    """What a query gives, every value as text; `names` are those of its columns."""
    statement = sql.SQL("COPY ({}) TO STDOUT (FORMAT csv, FORCE_QUOTE *, ENCODING 'UTF8')")
    text = io.BytesIO()
    be_exact(connection)
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
    be_exact(connection)
    with connection.cursor() as cursor, cursor.copy(statement.format(table, names)) as copy:
        copy.write(text.getbuffer())


def in_range(shape: Shape, within: KeyRange, of: str = "") -> sql.Composable:
    """The condition that a row is in a range; `of` is what its table is called there."""
    parts = [
        sql.SQL("({}) {} ({})").format(
            sql.SQL(", ").join(_named(it, of) for it in shape.key),
            sql.SQL(operator),
            key_values(shape, bound),
        )
        for operator, bound in ((">", within.low), ("<=", within.high))
        if bound is not None
    ]
    return sql.SQL(" AND ").join(parts) if parts else sql.SQL("true")


def names_of(columns: Iterable[Column]) -> sql.Composed:
    """The names of columns, one after the other."""
    return sql.SQL(", ").join(sql.Identifier(it.name) for it in columns)


def key_values(shape: Shape, key: Key) -> sql.Composed:
    """A key, each value as its column has it."""
    return sql.SQL(", ").join(
        sql.SQL("{}::{}").format(sql.Literal(value), sql.SQL(it.type))
        for it, value in zip(shape.key, key, strict=True)
    )


def key_texts(shape: Shape, of: str = "") -> sql.Composed:
    """The columns of the key as text; `of` is what its table is called there.

    All are compared byte by byte: columns of several collations could not be, nor looked up.
    """
    return sql.SQL(", ").join(
        sql.SQL('({}::text) COLLATE "C"').format(_named(it, of)) for it in shape.key
    )


def _begin_reading(connection: psycopg.Connection, table: TableName) -> None:
    hold(connection, table)
    be_exact(connection)


def _named(column: Column, of: str) -> sql.Identifier:
    return sql.Identifier(of, column.name) if of else sql.Identifier(column.name)


def _checksum(shape: Shape) -> sql.Composed:
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


def _with_length(column: Column) -> sql.Composed:
    return sql.SQL("length(format('%s', {it})) || ':' || format('%s', {it})").format(
        it=sql.Identifier(column.name)
    )


def _from(table: TableName, shape: Shape, within: KeyRange, where: str) -> dict[str, Any]:
    return {
        "table": table.sql,
        "within": in_range(shape, within),
        "where": sql.SQL(where),
    }


_SQL = queries("tables")
