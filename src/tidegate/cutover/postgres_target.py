"""PostgreSQL as a target: tables with full text, in the database of the flow itself.

There the alias is switched in the transaction that writes the flow's state.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.store.cutover import indexes, tables
from tidegate.store.cutover.index_ddl import SearchColumns, create_index
from tidegate.store.cutover.indexes import LIVE, SwitchRecord
from tidegate.store.cutover.tables import Key, KeyRange, RangeDigest, TableName, TableShape

if TYPE_CHECKING:
    import pyarrow as pa

    from tidegate.cutover.targets import Together
    from tidegate.store import Connection, Database


@dataclass(frozen=True, slots=True)
class PostgresTarget:
    """Indexes as tables beside a view, which is their alias."""

    alias: str
    """The view that readers use, as schema.name."""
    text: tuple[str, ...] = ()
    """The columns whose words are to be found by `document @@ to_tsquery(…)`."""
    language: str = "simple"
    """By the rules of which language: a text search configuration of PostgreSQL."""

    @contextmanager
    def open(self, own: Database) -> Iterator[PostgresIndexes]:
        """Use it."""
        search = SearchColumns(self.text, self.language)
        yield PostgresIndexes(own, TableName.parse(self.alias), search)


class PostgresIndexes:
    """Indexes that are being used."""

    def __init__(self, database: Database, alias: TableName, search: SearchColumns) -> None:
        self._database = database
        self._alias = alias
        self._search = search
        self._shapes: dict[str, TableShape] = {}

    @property
    def alias(self) -> str:
        """The whole name of the alias."""
        return str(self._alias)

    def qualified(self, index: str) -> str:
        """The whole name of an index: it is in the schema of its alias."""
        return str(self._name(index))

    def create(self, index: str, shape: TableShape) -> None:
        """Make an index for rows of this shape."""
        name = self._name(index)
        shape.only(self._search.columns, index)

        def made(connection: Connection) -> None:
            create_index(connection, name, shape, self._search, self._alias)
            indexes.check_alias(connection, self._alias, name)

        self._database.transact(made)

    def is_there(self, index: str) -> bool:
        """Whether there is an index of this name."""
        return self._database.transact(lambda c: indexes.exists(c, self._name(index)))

    def columns(self, index: str) -> tuple[str, ...]:
        """The columns that rows of an index have to bring."""
        return tuple(it.name for it in self._shape(index).columns)

    def identity(self, index: str) -> str:
        """What tells an index from all others, also from those that had its name before."""
        return self._database.transact(lambda c: indexes.identity(c, self._name(index)))

    def known(self) -> dict[str, str]:
        """The indexes that were made for the alias, each with its identity."""
        return self._database.transact(lambda c: indexes.known(c, self._alias))

    def is_empty(self, index: str) -> bool:
        """Whether nothing was ever written to an index."""
        return self._database.transact(lambda c: indexes.is_empty(c, self._name(index)))

    def check_usable(self, index: str) -> None:
        """Raise when this is no index of the alias, or was given up."""
        self._database.transact(lambda c: indexes.check_usable(c, self._name(index), self._alias))

    def write(self, index: str, rows: pa.Table, identity: str | None = None) -> int:
        """Write rows with their versions, never over a newer one."""
        name, shape = self._name(index), self._shape(index)
        return self._database.transact(lambda c: indexes.write(c, name, shape, rows, identity))

    def digest(self, index: str, within: KeyRange, shape: TableShape) -> RangeDigest:
        """What the rows of a range come to that are not deleted."""
        return self._database.transact(
            lambda c: tables.digest(c, self._name(index), shape, within, LIVE)
        )

    def checksums(self, index: str, within: KeyRange, shape: TableShape) -> dict[Key, int]:
        """The checksum of every row of a range that is not deleted."""
        return self._database.transact(
            lambda c: tables.checksums(c, self._name(index), shape, within, LIVE)
        )

    def current(self) -> str | None:
        """The index that the alias stands for."""
        return self._database.transact(lambda c: indexes.current(c, self._alias))

    def switch(self, index: str, noted: SwitchRecord, together: Together) -> None:
        """Let the alias stand for an index, in one transaction with what is done together."""
        name = self._name(index)

        def switched(connection: Connection) -> None:
            indexes.switch(connection, self._alias, name, noted)

        together(switched)

    def give_up(self, index: str, together: Together) -> None:
        """Let the alias never stand for an index again, and hold it for what is done together."""
        name = self._name(index)

        def given_up(connection: Connection) -> None:
            indexes.give_up(connection, name, self._alias)

        together(given_up)

    def drop(self, index: str) -> None:
        """Remove an index."""
        self._database.transact(lambda c: indexes.drop_index(c, self._name(index), self._alias))
        self._shapes.pop(index, None)

    def _name(self, index: str) -> TableName:
        return self._alias.beside(index)

    def _shape(self, index: str) -> TableShape:
        if index not in self._shapes:
            name = self._name(index)
            self._shapes[index] = self._database.transact(lambda c: indexes.index_shape(c, name))
        return self._shapes[index]
