"""How the changes of a user's table get into its log: a function, and triggers that call it.

What is there is looked at first, and only what is missing is made: a role that may not make it
need not, and writers are not disturbed without need. Names are no proof. A table that has taken
the name of another brings triggers of its own along, which write to another log.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

import psycopg
from psycopg import errors, sql

from tidegate.errors import LoggedTwice, TableBusy
from tidegate.store.core.queries import queries
from tidegate.store.cutover.change_log import SCHEMA, log_of
from tidegate.store.cutover.log_writer import (
    WRITER,
    Rights,
    ensure_writer,
    let_read_keys,
    restrict_function,
    rights,
    warn_of_superuser,
)
from tidegate.store.cutover.table_settings import EXACT, waiting_at_most
from tidegate.store.cutover.tables import TableName, TableShape, key_texts, names_of

PLAIN = frozenset(
    ("smallint", "integer", "bigint", "numeric", "text", "character varying", "character", "uuid")
)
"""Types whose text is the same under all settings."""
LOCK_BOUND = "300ms"
"""For which writers of a table wait at most behind the trigger that is to be created."""
BODY = "$body$"


@dataclass(frozen=True, slots=True)
class LogParts:
    """What is there of a log, except for the triggers; and the time, in microseconds."""

    has_schema: bool
    has_followers: bool
    has_log: bool
    has_function: bool
    """As it would be made today."""
    time: int

    @property
    def missing(self) -> tuple[str, ...]:
        """The statements that make the rest."""
        wanted = {
            "create_schema": self.has_schema,
            "create_followers": self.has_followers,
            "create_log": self.has_log,
            "create_function": self.has_function,
            "note_function": self.has_function,
        }
        return tuple(name for name, is_there in wanted.items() if not is_there)


def ensure_log(connection: psycopg.Connection, table: TableName, shape: TableShape) -> None:
    """Log the changes of a table from now on; nothing happens when that is done already.

    Creating a trigger waits until nobody writes to the table, and whoever wants to write waits
    behind it; so it waits shortly and raises `TableBusy`, to be tried again. `LoggedTwice` says
    that a partition would be followed alone and with its table.
    """
    connection.execute(_SQL["take_turns"].sql)
    found = rights(connection, table)
    warn_of_superuser(table, found)
    is_remade = _prepare(connection, table, shape, found)
    asked = _asked(connection, table)
    (is_logged,) = connection.execute(_SQL["is_logged"].sql, asked).fetchone() or (False,)
    if not is_logged:
        _check_rivals(connection, table)
        _create_triggers(connection, table)
    if found.may_hand_over and (is_remade or not is_logged):
        let_read_keys(connection, [table, *_partitions(connection, table)], names_of(shape.key))


def drop_log(connection: psycopg.Connection, table: TableName) -> None:
    """Log the changes of a table no longer."""
    for name in ("stop_logging", "drop_log"):
        connection.execute(_SQL[name].composed(_names(table)))


def _prepare(
    connection: psycopg.Connection, table: TableName, shape: TableShape, found: Rights
) -> bool:
    """Make the log, and the function that writes to it; whether either was made."""
    if found.may_hand_over:
        ensure_writer(connection, found)
    function = _function(connection, table, shape)
    note = f"tidegate: made of {sha256(function.as_string(connection).encode()).hexdigest()}"
    writer = WRITER if found.may_hand_over else None
    asked = {**_asked(connection, table), "note": note, "writer": writer}
    row = connection.execute(_SQL["prepared"].sql, asked).fetchone()
    assert row is not None
    prepared = LogParts(*row)
    parts = {
        **_names(table),
        "schema": sql.Identifier(SCHEMA),
        "time": sql.Literal(prepared.time),
        "note": sql.Literal(note),
    }
    for name in prepared.missing:
        is_function = name == "create_function"
        connection.execute(function if is_function else _SQL[name].composed(parts))
    is_remade = not (prepared.has_function and prepared.has_log)
    if is_remade:
        restrict_function(connection, parts, found)
    connection.execute(_SQL["forget_strange"].composed(parts))
    return is_remade


def _function(connection: psycopg.Connection, table: TableName, shape: TableShape) -> sql.Composed:
    """The statement that makes it; its body is a literal, which no name in it can end."""
    before, text, after = _SQL["create_function"].sql.decode().split(BODY)
    log = log_of(table).sql
    log_all = sql.SQL("INSERT INTO {} (key) SELECT ARRAY[{}] FROM ")
    body = sql.SQL(text).format(
        log=log,
        table_text=sql.Literal(str(table)),
        old=key_texts(shape, "old"),
        new=key_texts(shape, "new"),
        log_all=sql.Literal(log_all.format(log, key_texts(shape, "it")).as_string(connection)),
    )
    made = sql.Literal(body.as_string(connection))
    head = sql.SQL(before).format(function=log, settings=_settings(shape))
    return sql.Composed([head, made, sql.SQL(after)])


def _settings(shape: TableShape) -> sql.Composable:
    """What the text of keys depends on is not the writer's to choose; it costs writers a little."""
    if all(it.type.partition("(")[0] in PLAIN for it in shape.key):
        return sql.SQL("")
    return sql.SQL(" ").join(
        sql.SQL("SET {} = {}").format(sql.Identifier(name.lower()), _list(value))
        for name, value in EXACT.items()
        if name != "row_security"  # which it has in any case
    )


def _list(values: str) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Literal, values.split(", ")))


def _check_rivals(connection: psycopg.Connection, table: TableName) -> None:
    """A trigger that is taken from another log would leave its followers without changes."""
    found = connection.execute(_SQL["rivals"].sql, _asked(connection, table)).fetchone()
    if found is not None:
        raise LoggedTwice(str(table), str(TableName(*found)))


def _create_triggers(connection: psycopg.Connection, table: TableName) -> None:
    asked = _asked(connection, table)
    try:
        with waiting_at_most(connection, LOCK_BOUND):
            for *other, trigger in connection.execute(_SQL["strangers"].sql, asked).fetchall():
                parts = {"table": TableName(*other).sql, "trigger": sql.Identifier(trigger)}
                connection.execute(_SQL["drop_trigger"].composed(parts))
            connection.execute(_SQL["create_trigger"].composed(_names(table)))
            for it in (table, *_partitions(connection, table)):
                for name in ("create_truncate_trigger", "enable_triggers"):
                    connection.execute(_SQL[name].composed({**_names(table), "table": it.sql}))
    except errors.LockNotAvailable as busy:
        raise TableBusy(str(table)) from busy


def _partitions(connection: psycopg.Connection, table: TableName) -> list[TableName]:
    rows = connection.execute(_SQL["partitions"].sql, _asked(connection, table))
    return [TableName(*row) for row in rows]


def _names(table: TableName) -> dict[str, sql.Composable]:
    """The function has the name of the log that it writes to."""
    log = log_of(table).sql
    return {"table": table.sql, "log": log, "function": log}


def _asked(connection: psycopg.Connection, table: TableName) -> dict[str, str]:
    log = log_of(table).sql.as_string(connection)
    return {"table": table.sql.as_string(connection), "log": log, "function": f"{log}()"}


_SQL = queries(__name__)
