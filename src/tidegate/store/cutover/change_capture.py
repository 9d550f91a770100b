"""Change capture: the function and triggers that write the changes of a user's table to its log.

Existing parts are checked first and only missing ones are created: a role without the rights to
create them can still use them, and writers are not disturbed without need. Names are not
sufficient as a check: a renamed table brings its triggers along, which write to another log.
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
"""Types with the same text under all settings."""
LOCK_BOUND = "300ms"
"""How long the creation of a trigger may delay writers of a table."""
BODY = "$body$"


@dataclass(frozen=True, slots=True)
class LogParts:
    """Which parts of a log exist, except for the triggers; and the time in microseconds."""

    has_schema: bool
    has_consumers: bool
    has_log: bool
    has_function: bool
    """As this release would create it."""
    time: int

    @property
    def missing(self) -> tuple[str, ...]:
        """The statements that create the missing parts."""
        parts = {
            "create_schema": self.has_schema,
            "create_consumers": self.has_consumers,
            "create_log": self.has_log,
            "create_function": self.has_function,
            "comment_function": self.has_function,
        }
        return tuple(name for name, exists in parts.items() if not exists)


def ensure_log(connection: psycopg.Connection, table: TableName, shape: TableShape) -> None:
    """Log the changes of a table from now on; a repetition changes nothing.

    Creating a trigger waits for running writers, and new writers wait behind it. It therefore waits
    only briefly and raises `TableBusy`, to be retried. Raises `LoggedTwice` when a partition would
    be logged both by itself and with its table.
    """
    connection.execute(_SQL["lock"].sql)
    found = rights(connection, table)
    warn_of_superuser(table, found)
    is_remade = _prepare(connection, table, shape, found)
    parameters = _asked(connection, table)
    (is_logged,) = connection.execute(_SQL["is_logged"].sql, parameters).fetchone() or (False,)
    if not is_logged:
        _check_rivals(connection, table)
        _create_triggers(connection, table)
    if found.may_hand_over and (is_remade or not is_logged):
        let_read_keys(connection, [table, *_partitions(connection, table)], names_of(shape.key))


def drop_log(connection: psycopg.Connection, table: TableName) -> None:
    """Stop logging the changes of a table."""
    for name in ("stop_logging", "drop_log"):
        connection.execute(_SQL[name].composed(_names(table)))


def _prepare(
    connection: psycopg.Connection, table: TableName, shape: TableShape, found: Rights
) -> bool:
    """Create the log and its function; returns whether either was created."""
    if found.may_hand_over:
        ensure_writer(connection, found)
    function = _function(connection, table, shape)
    note = f"tidegate: made of {sha256(function.as_string(connection).encode()).hexdigest()}"
    writer = WRITER if found.may_hand_over else None
    parameters = {**_asked(connection, table), "note": note, "writer": writer}
    row = connection.execute(_SQL["prepared"].sql, parameters).fetchone()
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
    connection.execute(_SQL["remove_foreign"].composed(parts))
    return is_remade


def _function(connection: psycopg.Connection, table: TableName, shape: TableShape) -> sql.Composed:
    """The statement that creates the function; its body is a literal, so no name can end it."""
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
    """Fix the settings that the text of keys depends on; this costs writers a little."""
    if all(it.type.partition("(")[0] in PLAIN for it in shape.key):
        return sql.SQL("")
    return sql.SQL(" ").join(
        sql.SQL("SET {} = {}").format(sql.Identifier(name.lower()), _list(value))
        for name, value in EXACT.items()
        if name != "row_security"  # always set
    )


def _list(values: str) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Literal, values.split(", ")))


def _check_rivals(connection: psycopg.Connection, table: TableName) -> None:
    """Taking a trigger from another log would leave its consumers without changes."""
    found = connection.execute(_SQL["rivals"].sql, _asked(connection, table)).fetchone()
    if found is not None:
        raise LoggedTwice(str(table), str(TableName(*found)))


def _create_triggers(connection: psycopg.Connection, table: TableName) -> None:
    parameters = _asked(connection, table)
    try:
        with waiting_at_most(connection, LOCK_BOUND):
            for *other, trigger in connection.execute(_SQL["strangers"].sql, parameters).fetchall():
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
    """The function has the name of its log."""
    log = log_of(table).sql
    return {"table": table.sql, "log": log, "function": log}


def _asked(connection: psycopg.Connection, table: TableName) -> dict[str, str]:
    log = log_of(table).sql.as_string(connection)
    return {"table": table.sql.as_string(connection), "log": log, "function": f"{log}()"}


_SQL = queries(__name__)
