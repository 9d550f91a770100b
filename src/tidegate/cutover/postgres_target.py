"""PostgreSQL as a target: tables with full-text search, in the database of the flow.

The alias is switched in the transaction that writes the flow's state.
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
    """The columns that `document @@ to_tsquery(…)` searches."""
    language: str = "simple"
    """The text search configuration of PostgreSQL."""

    @contextmanager
    def open(self, own: Database) -> Iterator[PostgresIndexes]:
        """Open it."""
        search = SearchColumns(self.text, self.language)
        yield PostgresIndexes(own, TableName.parse(self.alias), search)


class PostgresIndexes:
    """The open target."""

    def __init__(self, database: Database, alias: TableName, search: SearchColumns) -> None:
        self._database = database
        self._alias = alias
        self._search = search
        self._shapes: dict[str, TableShape] = {}

    @property
    def alias(self) -> str:
        """The qualified name of the alias."""
        return str(self._alias)

    def qualified(self, index: str) -> str:
        """The qualified name of an index, which is in the schema of its alias."""
        return str(self._name(index))

    def create(self, index: str, shape: TableShape) -> None:
        """Create an index for rows of this shape."""
        name = self._name(index)
        shape.only(self._search.columns, index)

        def create(connection: Connection) -> None:
            create_index(connection, name, shape, self._search, self._alias)
            indexes.check_alias(connection, self._alias, name)

        self._database.transact(create)

    def is_there(self, index: str) -> bool:
        """Whether an index of this name exists."""
        return self._database.transact(lambda c: indexes.exists(c, self._name(index)))

    def columns(self, index: str) -> tuple[str, ...]:
        """The columns that rows of an index need."""
        return tuple(it.name for it in self._shape(index).columns)

    def identity(self, index: str) -> str:
        """An identifier that is unique to this index, also among reused names."""
        return self._database.transact(lambda c: indexes.identity(c, self._name(index)))

    def known(self) -> dict[str, str]:
        """The indexes of the alias, each with its identity."""
        return self._database.transact(lambda c: indexes.known(c, self._alias))

    def is_empty(self, index: str) -> bool:
        """Whether an index was never written to."""
        return self._database.transact(lambda c: indexes.is_empty(c, self._name(index)))

    def check_usable(self, index: str) -> None:
        """Raise if this is not an index of the alias, or is retired."""
        self._database.transact(lambda c: indexes.check_usable(c, self._name(index), self._alias))

    def write(self, index: str, rows: pa.Table, identity: str | None = None) -> int:
        """Write rows with their versions, never over a newer one."""
        name, shape = self._name(index), self._shape(index)
        return self._database.transact(lambda c: indexes.write(c, name, shape, rows, identity))

    def digest(self, index: str, within: KeyRange, shape: TableShape) -> RangeDigest:
        """Count and checksum of the rows of a range that are not deleted."""
        return self._database.transact(
            lambda c: tables.digest(c, self._name(index), shape, within, LIVE)
        )

    def checksums(self, index: str, within: KeyRange, shape: TableShape) -> dict[Key, int]:
        """The checksum of every row of a range that is not deleted."""
        return self._database.transact(
            lambda c: tables.checksums(c, self._name(index), shape, within, LIVE)
        )

    def current(self) -> str | None:
        """The index that the alias points to."""
        return self._database.transact(lambda c: indexes.current(c, self._alias))

    def switch(self, index: str, noted: SwitchRecord, together: Together) -> None:
        """Point the alias to an index, in one transaction with `together`."""
        name = self._name(index)

        def switched(connection: Connection) -> None:
            indexes.switch(connection, self._alias, name, noted)

        together(switched)

    def give_up(self, index: str, together: Together) -> None:
        """Exclude an index from later switches, and lock the alias for `together`."""
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
