"""Indexes in PostgreSQL: tables with versioned rows and full text, and the aliases that show them.

A row is written with its version and never overwrites a newer one; a deleted row stays as a
tombstone with its version, so that an older write does not restore it. An alias is a view over one
index, and switching it is atomic for readers.
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
"""The column of an alias with the searchable text."""
RETIRED = ", being retired"
"""Suffix of the comment of a retired index."""
LIVE = f"NOT {DELETED}"
LOCK_BOUND = "500ms"
"""How long a switch that waits for a lock may delay readers of an alias."""


@dataclass(frozen=True, slots=True)
class SwitchRecord:
    """What is recorded about a switch: its author, and the lag of the index."""

    by: str
    run: int | None = None
    """The flow run that switched; None: a person."""
    lag: Lag | None = None
    previous: str | None = None
    """The index before the first attempt. A retry against another target, whose response was lost,
    cannot read it any more."""


@dataclass(frozen=True, slots=True)
class Switch:
    """A recorded switch of an alias to an index."""

    alias: str
    index: str
    previous: str | None
    run: int | None
    by: str
    pending: int | None
    staleness: float | None
    at: datetime


def exists(connection: psycopg.Connection, index: TableName) -> bool:
    """Whether a relation with this name exists."""
    parameters = {"schema": index.schema, "name": index.name}
    return connection.execute(_SQL["exists"].sql, parameters).fetchone() is not None


def identity(connection: psycopg.Connection, index: TableName) -> str:
    """Identifies an index, also among earlier ones with the same name."""
    return _found(connection, index).identity


def check_owner(connection: psycopg.Connection, index: TableName, alias: TableName) -> None:
    """Raise `IndexDiffers` when this is not an index, or belongs to another alias."""
    if not _found(connection, index).comment.startswith(owned_by(alias)):
        raise IndexDiffers(str(index), f"it was not made for {alias}")


def check_usable(connection: psycopg.Connection, index: TableName, alias: TableName) -> None:
    """Like `check_owner`; also raises for a retired index."""
    check_owner(connection, index, alias)
    if _found(connection, index).comment.endswith(RETIRED):
        raise IndexDiffers(str(index), "it is being retired")


def known(connection: psycopg.Connection, alias: TableName) -> dict[str, str]:
    """The existing indexes of an alias, with their identities."""
    rows = connection.execute(_SQL["known"].sql, {"owned": owned_by(alias)})
    found = (_IndexEntry(TableName(schema, name), oid, text) for schema, name, oid, text in rows)
    return {str(it.index): it.identity for it in found}


def owned_by(alias: TableName) -> str:
    """The prefix of the comment of an index of this alias."""
    return f"tidegate: an index of {alias}, "


def set_comment(connection: psycopg.Connection, index: TableName, comment: str) -> None:
    """Store the owner and identity of an index as its comment."""
    parts = {"index": index.sql, "comment": sql.Literal(comment)}
    connection.execute(_SQL["set_comment"].composed(parts))


def is_empty(connection: psycopg.Connection, index: TableName) -> bool:
    """Whether an index is empty."""
    row = connection.execute(_SQL["is_empty"].composed({"index": index.sql})).fetchone()
    return row is not None and bool(row[0])


@dataclass(frozen=True, slots=True)
class _IndexEntry:
    """An index in the catalogue."""

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
        raise IndexDiffers(str(index), "it is not an index")
    if row[2] is not None:
        reason = f"it belongs to {row[2]}, and code of its owner would run with Tidegate's rights"
        raise IndexDiffers(str(index), reason)
    return _IndexEntry(index, row[0], row[1] or "")


def index_shape(connection: psycopg.Connection, index: TableName) -> TableShape:
    """The columns of an index that written rows must have."""
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
    """Write rows with their versions; returns how many were not older than the existing ones.

    Versions are valid only for the index that the rows were read for: raises `IndexDiffers` and
    writes nothing when it has another identity than expected.
    """
    try:
        connection.execute(_SQL["lock"].composed({"index": index.sql}))
    except errors.UndefinedTable as gone:
        raise IndexDiffers(str(index), "it is not an index") from gone
    found = _found(connection, index)
    if expected not in (None, found.identity):
        raise IndexDiffers(str(index), "it was recreated since these rows were read")
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
    connection.execute(_SQL["create_incoming"].composed(parts))
    copy_in(connection, incoming, rows)
    return connection.execute(_SQL["write"].composed(parts)).rowcount


def check_alias(connection: psycopg.Connection, alias: TableName, index: TableName) -> None:
    """Raise `AliasDiffers` when an index lacks a column of the alias."""
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
    """Refuse to replace a relation with the alias's name that is not an alias."""
    parameters = {"schema": alias.schema, "name": alias.name}
    row = connection.execute(_SQL["kind"].sql, parameters).fetchone()
    if row and not row[0]:
        raise AliasDiffers(str(alias), str(index), "a relation that is not a view has that name")
    if row and current(connection, alias) is None:
        raise AliasDiffers(str(alias), str(index), "it is a view that does not show an index")


def switch(
    connection: psycopg.Connection, alias: TableName, index: TableName, noted: SwitchRecord
) -> bool:
    """Switch an alias to an index and record it; False when it shows that index already.

    Readers wait behind a waiting switch, so it waits only briefly and raises `AliasBusy`.
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
    record_switch(connection, str(alias), str(index), str(before) if before else None, noted)
    return True


@contextmanager
def held(connection: psycopg.Connection, alias: str) -> Iterator[None]:
    """Lock an alias and its indexes against other operations until the transaction ends.

    In the block, locks are waited for only briefly: `AliasBusy`.
    """
    try:
        with waiting_at_most(connection, LOCK_BOUND):
            connection.execute(_SQL["lock_alias"].sql, {"alias": alias})
            yield
    except errors.LockNotAvailable as busy:
        raise AliasBusy(alias) from busy


def give_up(connection: psycopg.Connection, index: TableName, alias: TableName) -> None:
    """Retire an index, to which its alias is never switched again; raises `IndexInUse`.

    The alias is locked until the transaction ends, so that the index's feed can be ended in it.
    """
    with held(connection, str(alias)):
        if _current(connection, alias) == index:
            raise IndexInUse(str(index), f"{alias} shows it; reverse that first")
        check_owner(connection, index, alias)
        _check_unused(connection, index)
        comment = _found(connection, index).comment.removesuffix(RETIRED) + RETIRED
        try:
            set_comment(connection, index, comment)
        except errors.LockNotAvailable as busy:
            raise IndexInUse(str(index), "it is locked, for example by VACUUM; try again") from busy


def _check_unused(connection: psycopg.Connection, index: TableName) -> None:
    """Refuse an index that another view shows, as it could not be dropped later."""
    found = _found(connection, index)
    row = connection.execute(_SQL["shown_by"].sql, {"index": found.oid}).fetchone()
    if row:
        raise IndexInUse(str(index), f"the view {TableName(*row)} shows it; drop that first")


def current(connection: psycopg.Connection, alias: TableName) -> str | None:
    """The index that an alias shows; None when there is no such alias."""
    found = _current(connection, alias)
    return str(found) if found else None


def _current(connection: psycopg.Connection, alias: TableName) -> TableName | None:
    parameters = {"schema": alias.schema, "name": alias.name, "document": DOCUMENT}
    row = connection.execute(_SQL["current"].sql, parameters).fetchone()
    return TableName(*row) if row else None


def record_switch(
    connection: psycopg.Connection, alias: str, index: str, before: str | None, noted: SwitchRecord
) -> None:
    """Record the switch of an alias."""
    lag = noted.lag
    parameters = {
        "alias": alias, "index": index, "previous": before, "run": noted.run, "by": noted.by,
        "pending": lag.changes if lag else None, "staleness": lag.seconds if lag else None,
    }  # fmt: skip
    connection.execute(_SQL["record_switch"].sql, parameters)


def switches(connection: psycopg.Connection, alias: str, most: int = 20) -> list[Switch]:
    """The switches of an alias, latest first."""
    rows = connection.execute(_SQL["switches"].sql, {"alias": alias, "most": most})
    return [Switch(*row) for row in rows]


def switch_of(connection: psycopg.Connection, run: int) -> Switch | None:
    """The switch made by a flow run; None: the alias showed its index already."""
    row = connection.execute(_SQL["switch_of"].sql, {"run": run}).fetchone()
    return Switch(*row) if row else None


def drop_index(connection: psycopg.Connection, index: TableName, alias: TableName) -> None:
    """Drop an index of this alias that no alias shows."""
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
    """Existing columns of the alias keep their positions; new ones follow."""
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
    """Columns in the order of the alias, followed by new ones."""
    places = {name: at for at, (name, _) in enumerate(wanted)}
    return sorted(given, key=lambda it: places.get(it[0], len(places)))


def _view_columns(connection: psycopg.Connection, alias: TableName) -> list[tuple[str, str]] | None:
    parameters = {"schema": alias.schema, "name": alias.name}
    with plain_names(connection):
        rows = connection.execute(_SQL["view_columns"].sql, parameters).fetchall()
    return [(name, type_) for name, type_ in rows] or None


_SQL = queries(__name__)
