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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

import psycopg
import pyarrow as pa
from psycopg import errors, sql

from tidegate.errors import NotFollowed, TableBusy
from tidegate.store.messages import as_json
from tidegate.store.queries import queries
from tidegate.store.tables import (
    EXACT,
    Key,
    KeyRange,
    Shape,
    TableName,
    copy_out,
    in_range,
    key_texts,
)

SCHEMA = "tidegate_log"
VERSION, DELETED = "tidegate_version", "tidegate_deleted"
"""The columns that every row has beside its own."""
LONGEST_NAME = 63
PLAIN = frozenset(
    ("smallint", "integer", "bigint", "numeric", "text", "character varying", "character", "uuid")
)
"""Types whose text is the same under all settings."""
LOCK_BOUND = "300ms"
"""For which writers of a table wait at most behind the trigger that is to be created."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change in the log: which transaction made it, its number, and the row."""

    xid: int
    number: int
    key: Key


@dataclass(frozen=True, slots=True)
class Changes:
    """Some changes in their order, and the bound up to which they could be read."""

    rows: tuple[Change, ...]
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
class Holder:
    """Who keeps a log from being read any further: the oldest transaction that is running."""

    pid: int | None
    application: str
    state: str
    since: datetime | None

    def __str__(self) -> str:
        if self.pid is None:
            return "a prepared transaction, or one that has just ended"
        since = f" since {self.since:%H:%M:%S}" if self.since else ""
        return f"process {self.pid} ({self.application or 'unnamed'}), {self.state}{since}"


def log_of(table: TableName) -> TableName:
    """Where the changes of a table are logged.

    >>> str(log_of(TableName("shop", "articles")))
    'tidegate_log.shop.articles'
    """
    name = str(table)
    if len(name.encode()) > LONGEST_NAME:
        name = f"{name[:40]}-{sha256(name.encode()).hexdigest()[:16]}"
    return TableName(SCHEMA, name)


def ensure_log(connection: psycopg.Connection, table: TableName, shape: Shape) -> None:
    """Log the changes of a table from now on; nothing happens when that is done already.

    Creating a trigger waits until nobody writes to the table, and whoever wants to write waits
    behind it; so it waits shortly and raises `TableBusy`, to be tried again.
    """
    connection.execute(_SQL["take_turns"].sql)
    found = connection.execute(_SQL["is_logged"].sql, {"table": _quoted(connection, table)})
    if found.fetchone() is None:
        _begin_log(connection, table, shape)


def _begin_log(connection: psycopg.Connection, table: TableName, shape: Shape) -> None:
    log = log_of(table)
    parts: dict[str, sql.Composable] = {
        "log": log.sql,
        "log_text": sql.Literal(_quoted(connection, log)),
        "table": table.sql,
        "table_text": sql.Literal(str(table)),
        "settings": _settings(shape),
        "schema": sql.Identifier(SCHEMA),
        "by_key": sql.Identifier(f"{log.name[:54]} by key"),
        "function": sql.Identifier(SCHEMA, log.name),
        "old": key_texts(shape, "old"),
        "new": key_texts(shape, "new"),
        "log_all": sql.Literal(
            sql.SQL("INSERT INTO {} (key) SELECT ARRAY[{}] FROM ")
            .format(log.sql, key_texts(shape, "it"))
            .as_string(connection)
        ),
    }
    for name in ("create_schema", "create_followers", "create_log", "index_log", "create_function"):
        connection.execute(_composed(name, parts))
    _create_triggers(connection, table, parts)


def _create_triggers(
    connection: psycopg.Connection, table: TableName, parts: dict[str, sql.Composable]
) -> None:
    connection.execute(f"SET LOCAL lock_timeout = '{LOCK_BOUND}'".encode())
    try:
        for name in ("create_trigger", "create_truncate_trigger", "enable_triggers"):
            connection.execute(_composed(name, parts))
        asked = {"table": _quoted(connection, table)}
        for row in connection.execute(_SQL["partitions"].sql, asked).fetchall():
            part = {**parts, "table": TableName(*row).sql}
            for name in ("create_truncate_trigger", "enable_truncate_trigger"):
                connection.execute(_composed(name, part))
    except errors.LockNotAvailable as busy:
        raise TableBusy(str(table)) from busy
    connection.execute(b"SET LOCAL lock_timeout = 0")


def _settings(shape: Shape) -> sql.Composable:
    """What the text of keys depends on is not the writer's to choose; it costs writers a little."""
    if all(it.type.partition("(")[0] in PLAIN for it in shape.key):
        return sql.SQL("")
    return sql.SQL(" ").join(
        sql.SQL("SET {} = {}").format(sql.Identifier(name.lower()), _list(value))
        for name, value in EXACT.items()
    )


def _list(values: str) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Literal, values.split(", ")))


def drop_log(connection: psycopg.Connection, table: TableName) -> None:
    """Log the changes of a table no longer."""
    parts = {"log": log_of(table).sql, "function": log_of(table).sql}
    connection.execute(_composed("stop_logging", parts))
    connection.execute(_composed("drop_log", parts))


def head(connection: psycopg.Connection) -> int:
    """The offset behind which everything is that has been committed so far."""
    return _number(connection, "head")


def bound(connection: psycopg.Connection) -> int:
    """The offset up to which a log can be read: every transaction before it has ended."""
    return _number(connection, "bound")


def changes(
    connection: psycopg.Connection, table: TableName, offset: int, after: int, most: int
) -> Changes:
    """The next changes of transactions from `offset` on, behind a number of that transaction."""
    asked = {"offset": offset, "after": after, "most": most}
    rows = connection.execute(_composed("changes", {"log": _log(table)}), asked).fetchall()
    found = tuple(Change(xid, number, tuple(key)) for xid, number, key, _ in rows if key)
    return Changes(found, rows[0][3])


def pending_among(
    connection: psycopg.Connection, table: TableName, offset: int, keys: Sequence[Key]
) -> set[Key]:
    """Which of these keys were changed by transactions from `offset` on."""
    asked = {"offset": offset, "keys": as_json(keys)}
    if not keys:
        return set()
    rows = connection.execute(_composed("pending", {"log": _log(table)}), asked)
    return {tuple(key) for (key,) in rows}


def lag(connection: psycopg.Connection, table: TableName, offset: int) -> Lag:
    """How much of the log is not behind an offset."""
    asked = {"offset": offset, "most": Lag.MOST}
    row = connection.execute(_composed("lag", {"log": _log(table)}), asked).fetchone()
    assert row is not None
    return Lag(row[0], max(0.0, row[1]))


def holder(connection: psycopg.Connection) -> Holder:
    """Who keeps the bound where it is."""
    row = connection.execute(_SQL["holder"].sql).fetchone()
    return Holder(*row) if row else Holder(None, "", "", None)


def register(connection: psycopg.Connection, table: TableName, follower: str) -> int:
    """Keep changes for a follower from now on, or as before; answers the offset it begins with."""
    asked = {"log": log_of(table).name, "follower": follower}
    connection.execute(_SQL["register"].sql, asked)
    return registered(connection, table, follower)


def registered(connection: psycopg.Connection, table: TableName, follower: str) -> int:
    """The offset from which on all changes are kept for a follower; raises `NotFollowed`."""
    asked = {"log": log_of(table).name, "follower": follower}
    row = connection.execute(_SQL["registered"].sql, asked).fetchone()
    if row is None:
        raise NotFollowed(follower, str(table))
    return int(row[0])


def tell_offset(
    connection: psycopg.Connection, table: TableName, follower: str, offset: int
) -> int:
    """Say how far a follower is, and remove what all have behind them; answers how much it was.

    Raises `NotFollowed` when nothing is kept for it: whoever was forgotten does not come back.
    """
    asked = {"log": log_of(table).name, "follower": follower, "offset": offset}
    if not connection.execute(_SQL["tell_offset"].sql, asked).rowcount:
        raise NotFollowed(follower, str(table))
    return connection.execute(_composed("trim", {"log": _log(table)}), asked).rowcount


def forget_follower(connection: psycopg.Connection, table: TableName, follower: str) -> None:
    """Do not keep anything for a follower any more."""
    asked = {"log": log_of(table).name, "follower": follower}
    connection.execute(_SQL["forget_follower"].sql, asked)


def rows_within(
    connection: psycopg.Connection, table: TableName, shape: Shape, within: KeyRange
) -> pa.Table:
    """The rows of a range with their versions, all as they are at one moment."""
    query = _composed(
        "rows_within",
        {
            "columns": _texts(shape),
            "table": table.sql,
            "log": log_of(table).sql,
            "key": key_texts(shape, "it"),
            "within": in_range(shape, within, "it"),
        },
    )
    return copy_out(connection, query, [*_names(shape), VERSION, DELETED])


def rows_of(
    connection: psycopg.Connection, table: TableName, shape: Shape, keys: Sequence[Key]
) -> pa.Table:
    """The rows of these keys with their versions, also of those that are gone."""
    wanted = sql.SQL(", ").join(sql.SQL("({})").format(_literals(shape, key)) for key in keys)
    query = _composed(
        "rows_of",
        {
            "key_texts": sql.SQL(", ").join(
                sql.SQL("wanted.{}::text").format(sql.Identifier(it.name)) for it in shape.key
            ),
            "others": _others(shape),
            "wanted": wanted,
            "names": sql.SQL(", ").join(sql.Identifier(it.name) for it in shape.key),
            "table": table.sql,
            "log": log_of(table).sql,
            "same": sql.SQL(" AND ").join(
                sql.SQL("it.{0} = wanted.{0}").format(sql.Identifier(it.name)) for it in shape.key
            ),
            "first": sql.Identifier(shape.key[0].name),
        },
    )
    return copy_out(connection, query, [*_names(shape), VERSION, DELETED])


def _names(shape: Shape) -> list[str]:
    keys = {it.name for it in shape.key}
    return [
        *(it.name for it in shape.key),
        *(it.name for it in shape.columns if it.name not in keys),
    ]


def _texts(shape: Shape) -> sql.Composed:
    return sql.SQL(", ").join(
        sql.SQL("it.{}::text").format(sql.Identifier(name)) for name in _names(shape)
    )


def _others(shape: Shape) -> sql.Composed:
    names = _names(shape)[len(shape.key) :]
    return sql.SQL("").join(sql.SQL("it.{}::text, ").format(sql.Identifier(name)) for name in names)


def _literals(shape: Shape, key: Key) -> sql.Composed:
    return sql.SQL(", ").join(
        sql.SQL("{}::{}").format(sql.Literal(value), sql.SQL(it.type))
        for it, value in zip(shape.key, key, strict=True)
    )


def _log(table: TableName) -> sql.Composable:
    """The log in a statement with parameters, where a percent sign would stand for one."""
    return sql.SQL(log_of(table).sql.as_string(None).replace("%", "%%"))


def _quoted(connection: psycopg.Connection, table: TableName) -> str:
    return table.sql.as_string(connection)


def _number(connection: psycopg.Connection, query: str) -> int:
    row = connection.execute(_SQL[query].sql).fetchone()
    assert row is not None
    return int(row[0])


def _composed(name: str, parts: Mapping[str, sql.Composable]) -> sql.Composed:
    text = _SQL[name].sql.decode().removesuffix(";")
    return sql.SQL(text).format(**parts)


_SQL = queries("change_log")
