"""The log of changes of a user's table: fed by triggers, read in the order in which it is safe.

A row of the log names the key that was changed and the transaction that did it. Sequences are
drawn in another order than transactions commit, so a reader goes by transactions, and only up to
the oldest that is still running: everything before it has ended, and nothing can appear there any
more. An *offset* is such a bound: all changes of transactions before it.

The number of a change is the *version* of its row: whoever changes a row holds it until the end, so
for one key numbers grow as transactions commit. A row is read together with the last number that
its key has in the log, by one statement, and so at the same moment; a row that was not changed
since the log began has version 0. What is read later is never older.
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
"""The columns that every row has beside its own."""
LONGEST_NAME, CHECKPOINT_NAME = 63, 40
"""Bytes that a name may have, and that are kept of a longer one beside what tells it apart."""
TRIMMED = 10_000
"""Changes that are removed from a log at once."""


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """A change in the log: which transaction made it, its number, and the row."""

    xid: int
    number: int
    key: Key


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """Some changes in their order, and the bound up to which they could be read."""

    rows: tuple[LoggedChange, ...]
    bound: int
    """All transactions before it have ended."""


@dataclass(frozen=True, slots=True)
class Lag:
    """What of a log is not behind an offset yet."""

    changes: int
    """How many, at most `MOST`."""
    seconds: float
    """Since the oldest of them was made; 0 where there is none."""

    MOST = 10_000


@dataclass(frozen=True, slots=True)
class OldestTransaction:
    """Who keeps a log from being read any further: the oldest transaction that is running."""

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
    """Where the changes of a table are logged.

    >>> str(log_of(TableName("shop", "articles")))
    'tidegate_log.shop.articles'
    """
    name = str(table)
    whole = name.encode()
    if len(whole) > LONGEST_NAME:
        # By bytes, as PostgreSQL counts: what is too long for it would be cut off at its end.
        name = f"{whole[:CHECKPOINT_NAME].decode(errors='ignore')}-{sha256(whole).hexdigest()[:16]}"
    return TableName(SCHEMA, name)


def head(connection: psycopg.Connection) -> int:
    """The offset behind which everything is that has been committed so far."""
    return _number(connection, "head")


def bound(connection: psycopg.Connection) -> int:
    """The offset up to which a log can be read: every transaction before it has ended."""
    return _number(connection, "bound")


def changes(
    connection: psycopg.Connection, table: TableName, offset: int, after: int, most: int
) -> ChangeBatch:
    """The next changes of transactions from `offset` on, behind a number of that transaction."""
    asked = {"offset": offset, "after": after, "most": most}
    rows = connection.execute(_SQL["changes"].composed({"log": _log(table)}), asked).fetchall()
    found = tuple(LoggedChange(xid, number, tuple(key)) for xid, number, key, _ in rows if key)
    return ChangeBatch(found, rows[0][3])


def pending_among(
    connection: psycopg.Connection, table: TableName, offset: int, keys: Sequence[Key]
) -> set[Key]:
    """Which of these keys were changed by transactions from `offset` on."""
    asked = {"offset": offset, "keys": as_json(keys)}
    if not keys:
        return set()
    rows = connection.execute(_SQL["pending"].composed({"log": _log(table)}), asked)
    return {tuple(key) for (key,) in rows}


def lag(connection: psycopg.Connection, table: TableName, offset: int) -> Lag:
    """How much of the log is not behind an offset."""
    asked = {"offset": offset, "most": Lag.MOST}
    row = connection.execute(_SQL["lag"].composed({"log": _log(table)}), asked).fetchone()
    assert row is not None
    return Lag(row[0], max(0.0, row[1]))


def holder(connection: psycopg.Connection) -> OldestTransaction:
    """Who keeps the bound where it is."""
    row = connection.execute(_SQL["holder"].sql).fetchone()
    return OldestTransaction(*row) if row else OldestTransaction()


def register_consumer(connection: psycopg.Connection, table: TableName, follower: str) -> int:
    """Keep changes for a follower from now on, or as before; answers the offset it begins with."""
    asked = {"log": log_of(table).name, "follower": follower}
    connection.execute(_SQL["register"].sql, asked)
    return start_offset(connection, table, follower)


def start_offset(connection: psycopg.Connection, table: TableName, follower: str) -> int:
    """The offset from which on all changes are kept for a follower; raises `NotFollowed`."""
    asked = {"log": log_of(table).name, "follower": follower}
    row = connection.execute(_SQL["registered"].sql, asked).fetchone()
    if row is None:
        raise NotFollowed(follower, str(table))
    return int(row[0])


def consumers(connection: psycopg.Connection, table: TableName) -> dict[str, int]:
    """For whom changes of a table are kept, and from which offset on."""
    if connection.execute(_SQL["has_followers"].sql).fetchone() is None:
        return {}
    rows = connection.execute(_SQL["followers"].sql, {"log": log_of(table).name})
    return {name: int(offset) for name, offset in rows}


def commit_offset(
    connection: psycopg.Connection, table: TableName, follower: str, offset: int
) -> int:
    """Say how far a follower is, and remove what all have behind them; answers how much it was.

    It is no more than `TRIMMED` at once, so that nobody waits for long.

    Raises `NotFollowed` when nothing is kept for it: whoever was forgotten does not come back.
    """
    asked = {
        "log": log_of(table).name, "follower": follower, "offset": offset, "most": TRIMMED,
    }  # fmt: skip
    if not connection.execute(_SQL["tell_offset"].sql, asked).rowcount:
        raise NotFollowed(follower, str(table))
    return connection.execute(_SQL["trim"].composed({"log": _log(table)}), asked).rowcount


def remove_consumer(connection: psycopg.Connection, table: TableName, follower: str) -> None:
    """Do not keep anything for a follower any more."""
    asked = {"log": log_of(table).name, "follower": follower}
    connection.execute(_SQL["forget_follower"].sql, asked)


def rows_within(
    connection: psycopg.Connection, table: TableName, shape: TableShape, within: KeyRange
) -> pa.Table:
    """The rows of a range with their versions, all as they are at one moment."""
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
    """The rows of these keys with their versions, also of those that are gone."""
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
    """Columns as they are: COPY writes them as text, and calls no cast for it."""
    values = [sql.SQL("it.{}").format(sql.Identifier(name)) for name in names]
    return sql.SQL(", ").join(values) + sql.SQL(end if names else "")


def _log(table: TableName) -> sql.Composable:
    """The log in a statement with parameters, where a percent sign would stand for one."""
    return sql.SQL(log_of(table).sql.as_string(None).replace("%", "%%"))


def _number(connection: psycopg.Connection, query: str) -> int:
    row = connection.execute(_SQL[query].sql).fetchone()
    assert row is not None
    return int(row[0])


_SQL = queries(__name__)
