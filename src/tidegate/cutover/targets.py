"""What a cutover needs of the place where indexes are: one small protocol.

PostgreSQL fulfils it (`postgres`). A search engine would with its own versions: `write` as
`external_gte`, `switch` as an atomic change of aliases, followed by `together`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from tidegate.store import Database
    from tidegate.store.cutover.indexes import SwitchRecord
    from tidegate.store.cutover.tables import Key, KeyRange, RangeDigest, TableShape

Together = Callable[[Callable[[Any], None]], None]
"""Runs work on a connection to the flow's database, in one transaction with the flow's state."""


class Target(Protocol):
    """Where indexes are, as declared. Spark takes it to its workers, so it can be pickled."""

    @property
    def alias(self) -> str:
        """What readers use."""
        ...

    def open(self, own: Database) -> AbstractContextManager[Indexes]:
        """Use it; `own` is the database of the flow."""
        ...


class Indexes(Protocol):
    """A target that is being used. Everything may be repeated."""

    @property
    def alias(self) -> str:
        """The whole name of the alias, under which switches are kept."""
        ...

    def qualified(self, index: str) -> str:
        """The whole name of an index."""
        ...

    def create(self, index: str, shape: TableShape) -> None:
        """Make an index for rows of this shape, and check that it can stand behind the alias."""
        ...

    def is_there(self, index: str) -> bool:
        """Whether there is an index of this name."""
        ...

    def columns(self, index: str) -> tuple[str, ...]:
        """The columns that rows of an index have to bring."""
        ...

    def identity(self, index: str) -> str:
        """What tells an index from all others, also elsewhere or with its name before it."""
        ...

    def is_empty(self, index: str) -> bool:
        """Whether nothing was ever written to an index."""
        ...

    def known(self) -> dict[str, str]:
        """The indexes that were made for the alias and are there, each with its identity."""
        ...

    def check_usable(self, index: str) -> None:
        """Raise `IndexDiffers` when this is no index of the alias, or was given up."""
        ...

    def write(self, index: str, rows: pa.Table, identity: str | None = None) -> int:
        """Write rows with their versions, never over a newer one; deleted rows are marked so.

        Refused when the index has another identity than the one that is given. Answers how many
        were not older than what was there.
        """
        ...

    def digest(self, index: str, within: KeyRange, shape: TableShape) -> RangeDigest:
        """What the rows of a range come to that are not deleted."""
        ...

    def checksums(self, index: str, within: KeyRange, shape: TableShape) -> dict[Key, int]:
        """The checksum of every row of a range that is not deleted."""
        ...

    def current(self) -> str | None:
        """The index that the alias stands for."""
        ...

    def switch(self, index: str, noted: SwitchRecord, together: Together) -> None:
        """Let the alias stand for an index, at once for all readers, and do `together` with it.

        What is done together keeps the switch (`store.indexes.note_switch`), which is how going
        back finds the index before. Where the alias stands for the index already, an earlier try
        has switched it, and `noted.previous` is what it stood for.
        """
        ...

    def give_up(self, index: str, together: Together) -> None:
        """Let the alias never stand for an index again, and do `together` with it.

        Raises `IndexInUse` when it stands for it. Until what is done together has ended, nobody
        switches the alias (`store.indexes.held`): nothing is taken from an index that readers come
        to see.
        """
        ...

    def drop(self, index: str) -> None:
        """Remove an index."""
        ...
