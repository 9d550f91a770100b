"""Indexes in PostgreSQL: tables with versioned rows and full text, and the views that show them.

A row is written with its version and never overwrites a newer one; a row that is gone stays as a
mark with its version, so that an older write does not bring it back. An alias is a view over one
index: whoever reads it sees one or the other, at any moment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

import psycopg
import pyarrow as pa
from psycopg import errors, sql

from tidegate.errors import AliasBusy, AliasDiffers, IndexDiffers, IndexInUse
from tidegate.store.core.queries import queries
from tidegate.store.cutover.alias_grants import check_row_security, keep_rights, view_options
from tidegate.store.cutover.change_log import DELETED, VERSION, Lag
from tidegate.store.cutover.table_settings import plain_names, waiting_at_most
from tidegate.store.cutover.tables import TableName, TableShape, copy_in, names_of, shape_of

DOCUMENT = "tidegate_document"
SHOWN = "document"
"""What readers of an alias know the searchable text of a row by."""
RETIRED = ", being retired"
"""Behind the comment of an index that was given up."""
LIVE = f"NOT {DELETED}"
LOCK_BOUND = "500ms"
"""For which readers of an alias wait at most behind a switch that waits for others."""


@dataclass(frozen=True, slots=True)
class SwitchRecord:
    """What is kept about a switch: who made it, and how far the index was then."""

    by: str
    run: int | None = None
    """Of the flow that made it; None: a person did."""
    lag: Lag | None = None
    previous: str | None = None
    """What the alias stood for when the switch was first tried. A target elsewhere whose answer was
    lost has switched, and cannot tell any more."""


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


def exists(connection: psycopg.Connection, index: TableName) -> bool:
    """Whether something has this name."""
    parameters = {"schema": index.schema, "name": index.name}
    return connection.execute(_SQL["is_there"].sql, parameters).fetchone() is not None


def identity(connection: psycopg.Connection, index: TableName) -> str:
    """What tells an index from all others, also from one of the same name that was before it."""
    return _found(connection, index).identity


def check_owner(connection: psycopg.Connection, index: TableName, alias: TableName) -> None:
    """Raise `IndexDiffers` when this is no index, or one that was made for another alias."""
    if not _found(connection, index).comment.startswith(owned_by(alias)):
        raise IndexDiffers(str(index), f"it was not made for {alias}")


def check_usable(connection: psycopg.Connection, index: TableName, alias: TableName) -> None:
    """The same, also when it was given up."""
    check_owner(connection, index, alias)
    if _found(connection, index).comment.endswith(RETIRED):
        raise IndexDiffers(str(index), "it is being retired")


def known(connection: psycopg.Connection, alias: TableName) -> dict[str, str]:
    """The indexes that were made for an alias and are there, each with its identity."""
    rows = connection.execute(_SQL["known"].sql, {"owned": owned_by(alias)})
    found = (_IndexEntry(TableName(schema, name), oid, text) for schema, name, oid, text in rows)
    return {str(it.index): it.identity for it in found}


def owned_by(alias: TableName) -> str:
    """How the comment of an index begins that was made for an alias."""
    return f"tidegate: an index of {alias}, "


def note_comment(connection: psycopg.Connection, index: TableName, comment: str) -> None:
    """Keep whose an index is, where `identity` finds it."""
    parts = {"index": index.sql, "comment": sql.Literal(comment)}
    connection.execute(_SQL["note_comment"].composed(parts))


def is_empty(connection: psycopg.Connection, index: TableName) -> bool:
    """Whether nothing was ever written to an index."""
    row = connection.execute(_SQL["is_empty"].composed({"index": index.sql})).fetchone()
    return row is not None and bool(row[0])


@dataclass(frozen=True, slots=True)
class _IndexEntry:
    """An index as the catalogue has it."""

    index: TableName
    oid: int
    comment: str

    @property
    def identity(self) -> str:
        return f"{self.index} ({self.comment.removesuffix(RETIRED)})"


def _found(connection: psycopg.Connection, index: TableName) -> _IndexEntry:
    parameters = {"schema": index.schema, "name": index.name}
    row = connection.execute(_SQL["identity"].sql, parameters).fetchone()
    if row is None:
        raise IndexDiffers(str(index), "it is no index")
    if row[2] is not None:
        reason = f"it belongs to {row[2]}, and code of its owner would run with Tidegate's rights"
        raise IndexDiffers(str(index), reason)
    return _IndexEntry(index, row[0], row[1] or "")


def index_shape(connection: psycopg.Connection, index: TableName) -> TableShape:
    """The columns of an index that rows have to bring."""
    found = shape_of(connection, index)
    found.check_types(str(index))
    own = {VERSION, DELETED}
    return TableShape(found.key, tuple(it for it in found.columns if it.name not in own))


def write(
    connection: psycopg.Connection,
    index: TableName,
    shape: TableShape,
    rows: pa.Table | pa.RecordBatch,
    expected: str | None = None,
) -> int:
    """Write rows with their versions; answers how many were not older than what is there.

    Versions mean something to the index for which rows were read, so whoever comes late finds
    another identity than the one it expects, and writes nothing: `IndexDiffers`.
    """
    try:
        connection.execute(_SQL["hold"].composed({"index": index.sql}))
    except errors.UndefinedTable as gone:
        raise IndexDiffers(str(index), "it is no index") from gone
    found = _found(connection, index)
    if expected not in (None, found.identity):
        raise IndexDiffers(str(index), "it was dropped and made again since these rows were read")
    incoming = sql.Identifier("pg_temp", f"tidegate_incoming_{found.oid}")
    own = [sql.Identifier(it) for it in (VERSION, DELETED)]
    names = [*(sql.Identifier(it.name) for it in shape.columns), *own]
    parts = {
        "incoming": incoming,
        "index": index.sql,
        "key": names_of(shape.key),
        "names": sql.SQL(", ").join(names),
        "values": sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(it) for it in names),
    }
    connection.execute(_SQL["make_incoming"].composed(parts))
    copy_in(connection, incoming, rows)
    return connection.execute(_SQL["write"].composed(parts)).rowcount


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
    parameters = {"schema": alias.schema, "name": alias.name}
    row = connection.execute(_SQL["kind"].sql, parameters).fetchone()
    if row and not row[0]:
        raise AliasDiffers(str(alias), str(index), "what has that name is no view")
    if row and current(connection, alias) is None:
        raise AliasDiffers(str(alias), str(index), "it is a view that shows no index")


def switch(
    connection: psycopg.Connection, alias: TableName, index: TableName, noted: SwitchRecord
) -> bool:
    """Let an alias stand for an index, and note it; whether it stood for another before.

    Readers wait behind whoever waits for the alias, so that is not done for long: `AliasBusy`.
    """
    with held(connection, str(alias)):
        before = _current(connection, alias)
        if before == index:
            return False
        check_usable(connection, index, alias)
        check_row_security(connection, alias, before, index)
        try:
            connection.execute(_view(connection, alias, index))
        except errors.InvalidTableDefinition as differs:
            reason = str(differs).partition("\n")[0]
            raise AliasDiffers(str(alias), str(index), reason) from differs
        keep_rights(connection, alias, before, index)
    note_switch(connection, str(alias), str(index), str(before) if before else None, noted)
    return True


@contextmanager
def held(connection: psycopg.Connection, alias: str) -> Iterator[None]:
    """One at a time decides what becomes of an alias and its indexes, until its transaction ends.

    In the block no lock is waited for any longer than readers may be kept: `AliasBusy`.
    """
    try:
        with waiting_at_most(connection, LOCK_BOUND):
            connection.execute(_SQL["hold_alias"].sql, {"alias": alias})
            yield
    except errors.LockNotAvailable as busy:
        raise AliasBusy(alias) from busy


def give_up(connection: psycopg.Connection, index: TableName, alias: TableName) -> None:
    """Let an alias never stand for an index again; raises `IndexInUse` when it stands for it.

    The alias is held until the transaction ends: what kept the index fresh can be ended in it.
    """
    with held(connection, str(alias)):
        if _current(connection, alias) == index:
            raise IndexInUse(str(index), f"{alias} stands for it; reverse that first")
        check_owner(connection, index, alias)
        _check_unused(connection, index)
        comment = _found(connection, index).comment.removesuffix(RETIRED) + RETIRED
        try:
            note_comment(connection, index, comment)
        except errors.LockNotAvailable as busy:
            raise IndexInUse(
                str(index), "somebody works on it, as VACUUM does; try again"
            ) from busy


def _check_unused(connection: psycopg.Connection, index: TableName) -> None:
    """A view of somebody else's would keep it from being dropped when its feed has ended."""
    found = _found(connection, index)
    row = connection.execute(_SQL["shown_by"].sql, {"index": found.oid}).fetchone()
    if row:
        raise IndexInUse(str(index), f"the view {TableName(*row)} shows it; drop that first")


def current(connection: psycopg.Connection, alias: TableName) -> str | None:
    """The index that an alias stands for; None when there is no such alias."""
    found = _current(connection, alias)
    return str(found) if found else None


def _current(connection: psycopg.Connection, alias: TableName) -> TableName | None:
    parameters = {"schema": alias.schema, "name": alias.name, "document": DOCUMENT}
    row = connection.execute(_SQL["current"].sql, parameters).fetchone()
    return TableName(*row) if row else None


def note_switch(
    connection: psycopg.Connection, alias: str, index: str, before: str | None, noted: SwitchRecord
) -> None:
    """Keep that an alias stands for another index since now."""
    lag = noted.lag
    parameters = {
        "alias": alias, "index": index, "previous": before, "run": noted.run, "by": noted.by,
        "pending": lag.changes if lag else None, "staleness": lag.seconds if lag else None,
    }  # fmt: skip
    connection.execute(_SQL["note_switch"].sql, parameters)


def switches(connection: psycopg.Connection, alias: str, most: int = 20) -> list[Switch]:
    """What an alias stood for, the last first."""
    rows = connection.execute(_SQL["switches"].sql, {"alias": alias, "most": most})
    return [Switch(*row) for row in rows]


def switch_of(connection: psycopg.Connection, run: int) -> Switch | None:
    """The switch that a run of a flow has made; None: the alias stood for its index already."""
    row = connection.execute(_SQL["switch_of"].sql, {"run": run}).fetchone()
    return Switch(*row) if row else None


def drop_index(connection: psycopg.Connection, index: TableName, alias: TableName) -> None:
    """Remove an index that was made for this alias, and that none stands for."""
    if not exists(connection, index):
        return
    check_owner(connection, index, alias)
    try:
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(index.sql))
    except errors.DependentObjectsStillExist as used:
        raise IndexDiffers(str(index), str(used).partition("\n")[0]) from used


def was_shown(connection: psycopg.Connection, alias: str, index: str) -> bool:
    """Whether readers of an alias were ever switched to an index."""
    parameters = {"alias": alias, "index": index}
    return connection.execute(_SQL["was_shown"].sql, parameters).fetchone() is not None


def _view(connection: psycopg.Connection, alias: TableName, index: TableName) -> sql.Composed:
    """Readers find the columns they have where they were; others come behind them."""
    names = [it.name for it in index_shape(connection, index).columns]
    columns = {it: sql.Identifier(it) for it in names if it != SHOWN}
    shown = sql.SQL("{} AS {}").format(sql.Identifier(DOCUMENT), sql.Identifier(SHOWN))
    wanted = _view_columns(connection, alias) or []
    ordered = _in_order([(it, "") for it in [*columns, SHOWN]], wanted)
    return _SQL["create_view"].composed(
        {
            "alias": alias.sql,
            "options": view_options(connection, alias),
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
    parameters = {"schema": alias.schema, "name": alias.name}
    with plain_names(connection):
        rows = connection.execute(_SQL["view_columns"].sql, parameters).fetchall()
    return [(name, type_) for name, type_ in rows] or None


_SQL = queries(__name__)
