"""The change log of a user's table: written by triggers, read in transaction order.

A log row names the changed key and its transaction. Sequence numbers are not assigned in commit
order, so a reader proceeds by transactions, and only up to the oldest running one: all transactions
before it have ended, and no change can appear there later. An *offset* is such a bound: all changes
of transactions before it.

The number of a change is the *version* of its row: a changed row stays locked until the commit, so
the numbers of one key grow in commit order. A row is read together with the last number of its key
in the log, by one statement and thus at the same moment; a row that was not changed since the log
was created has version 0. A later read is never older.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

import psycopg
import pyarrow as pa
from psycopg import sql

from tidegate.errors import NotFollowed
from tidegate.store.core.queries import queries
from tidegate.store.cutover.tables import (
    Key,
    KeyRange,
    TableName,
    TableShape,
    begin_reading,
    copy_out,
    in_range,
    key_texts,
    key_values,
    operator_of,
)
from tidegate.store.runs.message_codec import as_json

SCHEMA = "tidegate_log"
VERSION, DELETED = "tidegate_version", "tidegate_deleted"
"""The columns added to every row."""
LONGEST_NAME, NAME_PREFIX = 63, 40
"""Longest name in bytes, and the length of the prefix kept of a longer one before its digest."""
TRIMMED = 10_000
"""Number of changes removed from a log at once."""


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """A change in the log: its transaction, its number, and the key of the row."""

    xid: int
    number: int
    key: Key


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """Changes in their order, and the bound up to which the log can be read."""

    rows: tuple[LoggedChange, ...]
    bound: int
    """All transactions before it have ended."""


@dataclass(frozen=True, slots=True)
class Lag:
    """The changes of a log after an offset."""

    changes: int
    """Their number, at most `MOST`."""
    seconds: float
    """Age of the oldest one; 0 without changes."""

    MOST = 10_000


@dataclass(frozen=True, slots=True)
class OldestTransaction:
    """The oldest running transaction, up to which a log can be read."""

    pid: int | None = None
    """None: it is a prepared transaction, or has just ended."""
    application: str = ""
    state: str = ""
    since: datetime | None = None
    prepared: str | None = None
    """The name under which a transaction was prepared."""

    def __str__(self) -> str:
        since = f" since {self.since:%H:%M:%S}" if self.since else ""
        if self.prepared is not None:
            return f"the prepared transaction {self.prepared!r}{since}"
        if self.pid is None:
            return "a transaction that has just ended"
        return f"process {self.pid} ({self.application or 'unnamed'}), {self.state}{since}"


def log_of(table: TableName) -> TableName:
    """The log of a table.

    >>> str(log_of(TableName("shop", "articles")))
    'tidegate_log.shop.articles'
    """
    name = str(table)
    whole = name.encode()
    if len(whole) > LONGEST_NAME:
        # In bytes, as PostgreSQL counts, which would truncate a longer name.
        name = f"{whole[:NAME_PREFIX].decode(errors='ignore')}-{sha256(whole).hexdigest()[:16]}"
    return TableName(SCHEMA, name)


def head(connection: psycopg.Connection) -> int:
    """The offset after all changes committed so far."""
    return _number(connection, "head")


def bound(connection: psycopg.Connection) -> int:
    """The offset up to which a log can be read: all transactions before it have ended."""
    return _number(connection, "bound")


def changes(
    connection: psycopg.Connection, table: TableName, offset: int, after: int, most: int
) -> ChangeBatch:
    """The next changes of transactions from `offset` on, after a number of that transaction."""
    parameters = {"offset": offset, "after": after, "most": most}
    rows = connection.execute(_SQL["changes"].composed({"log": _log(table)}), parameters).fetchall()
    found = tuple(LoggedChange(xid, number, tuple(key)) for xid, number, key, _ in rows if key)
    return ChangeBatch(found, rows[0][3])


def pending_among(
    connection: psycopg.Connection, table: TableName, offset: int, keys: Sequence[Key]
) -> set[Key]:
    """Which of these keys were changed by transactions from `offset` on."""
    parameters = {"offset": offset, "keys": as_json(keys)}
    if not keys:
        return set()
    rows = connection.execute(_SQL["pending"].composed({"log": _log(table)}), parameters)
    return {tuple(key) for (key,) in rows}


def lag(connection: psycopg.Connection, table: TableName, offset: int) -> Lag:
    """How much of the log is not behind an offset."""
    parameters = {"offset": offset, "most": Lag.MOST}
    row = connection.execute(_SQL["lag"].composed({"log": _log(table)}), parameters).fetchone()
    assert row is not None
    return Lag(row[0], max(0.0, row[1]))


def holder(connection: psycopg.Connection) -> OldestTransaction:
    """Who keeps the bound where it is."""
    row = connection.execute(_SQL["holder"].sql).fetchone()
    return OldestTransaction(*row) if row else OldestTransaction()


def register_consumer(connection: psycopg.Connection, table: TableName, consumer: str) -> int:
    """Register a consumer, for which changes are retained; returns its start offset."""
    parameters = {"log": log_of(table).name, "consumer": consumer}
    connection.execute(_SQL["register"].sql, parameters)
    return start_offset(connection, table, consumer)


def start_offset(connection: psycopg.Connection, table: TableName, consumer: str) -> int:
    """The offset from which changes are retained for a consumer; raises `NotFollowed`."""
    parameters = {"log": log_of(table).name, "consumer": consumer}
    row = connection.execute(_SQL["start_offset"].sql, parameters).fetchone()
    if row is None:
        raise NotFollowed(consumer, str(table))
    return int(row[0])


def consumers(connection: psycopg.Connection, table: TableName) -> dict[str, int]:
    """The consumers of a table's log, with their offsets."""
    if connection.execute(_SQL["has_consumers"].sql).fetchone() is None:
        return {}
    rows = connection.execute(_SQL["consumers"].sql, {"log": log_of(table).name})
    return {name: int(offset) for name, offset in rows}


def commit_offset(
    connection: psycopg.Connection, table: TableName, consumer: str, offset: int
) -> int:
    """Commit the offset of a consumer and trim what all have consumed; returns the trimmed number.

    At most `TRIMMED` changes are removed, which keeps the transaction short. Raises `NotFollowed`
    for an unknown consumer: a removed one cannot continue.
    """
    parameters = {
        "log": log_of(table).name, "consumer": consumer, "offset": offset, "most": TRIMMED,
    }  # fmt: skip
    if not connection.execute(_SQL["commit_offset"].sql, parameters).rowcount:
        raise NotFollowed(consumer, str(table))
    return connection.execute(_SQL["trim"].composed({"log": _log(table)}), parameters).rowcount


def remove_consumer(connection: psycopg.Connection, table: TableName, consumer: str) -> None:
    """Stop retaining changes for a consumer."""
    parameters = {"log": log_of(table).name, "consumer": consumer}
    connection.execute(_SQL["remove_consumer"].sql, parameters)


def rows_within(
    connection: psycopg.Connection, table: TableName, shape: TableShape, within: KeyRange
) -> pa.Table:
    """The rows of a range with their versions, at one moment."""
    query = _SQL["rows_within"].composed(
        {
            "columns": _values(shape.key_first),
            "table": table.sql,
            "log": log_of(table).sql,
            "key": key_texts(shape, "it"),
            "within": in_range(shape, within, "it"),
        },
    )
    return _read(connection, table, shape, query)


def rows_of(
    connection: psycopg.Connection, table: TableName, shape: TableShape, keys: Sequence[Key]
) -> pa.Table:
    """The rows of these keys with their versions, including deleted ones."""
    names = [sql.Identifier(it.name) for it in shape.key]
    wanted = (sql.SQL("({})").format(key_values(shape, key)) for key in keys)
    query = _SQL["rows_of"].composed(
        {
            "key_texts": key_texts(shape, "wanted"),
            "others": _values(shape.key_first[len(names) :], end=", "),
            "wanted": sql.SQL(", ").join(wanted),
            "names": sql.SQL(", ").join(names),
            "table": table.sql,
            "log": log_of(table).sql,
            "same": sql.SQL(" AND ").join(
                sql.SQL("it.{0} {1} wanted.{0}").format(
                    sql.Identifier(it.name), operator_of(it, "=")
                )
                for it in shape.key
            ),
            "first": names[0],
        },
    )
    return _read(connection, table, shape, query)


def _read(
    connection: psycopg.Connection, table: TableName, shape: TableShape, query: sql.Composed
) -> pa.Table:
    begin_reading(connection, table, shape)
    return copy_out(connection, query, [*shape.key_first, VERSION, DELETED])


def _values(names: Sequence[str], end: str = "") -> sql.Composed:
    """Columns without casts: COPY writes them as text by itself."""
    values = [sql.SQL("it.{}").format(sql.Identifier(name)) for name in names]
    return sql.SQL(", ").join(values) + sql.SQL(end if names else "")


def _log(table: TableName) -> sql.Composable:
    """The log in a statement with parameters, where percent signs have to be doubled."""
    return sql.SQL(log_of(table).sql.as_string(None).replace("%", "%%"))


def _number(connection: psycopg.Connection, query: str) -> int:
    row = connection.execute(_SQL[query].sql).fetchone()
    assert row is not None
    return int(row[0])


_SQL = queries(__name__)
