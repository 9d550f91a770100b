"""The protocol of a target, which holds the indexes of a cutover.

`postgres_target` implements it. A search engine would implement `write` with external versions
(`external_gte`) and `switch` as an atomic change of aliases, followed by `together`.
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
    """The declaration of a target; Spark ships it to its tasks, so it can be pickled."""

    @property
    def alias(self) -> str:
        """The name that readers use."""
        ...

    def open(self, own: Database) -> AbstractContextManager[Indexes]:
        """Open it; `own` is the database of the flow."""
        ...


class Indexes(Protocol):
    """An open target. Every operation may be repeated."""

    @property
    def alias(self) -> str:
        """The qualified name of the alias, under which switches are recorded."""
        ...

    def qualified(self, index: str) -> str:
        """The qualified name of an index."""
        ...

    def create(self, index: str, shape: TableShape) -> None:
        """Create an index for rows of this shape, and check that the alias can point to it."""
        ...

    def is_there(self, index: str) -> bool:
        """Whether an index of this name exists."""
        ...

    def columns(self, index: str) -> tuple[str, ...]:
        """The columns that rows of an index need."""
        ...

    def identity(self, index: str) -> str:
        """An identifier that is unique to this index, also among deployments and reused names."""
        ...

    def is_empty(self, index: str) -> bool:
        """Whether an index was never written to."""
        ...

    def known(self) -> dict[str, str]:
        """The existing indexes of the alias, each with its identity."""
        ...

    def check_usable(self, index: str) -> None:
        """Raise `IndexDiffers` if this is not an index of the alias, or is retired."""
        ...

    def write(self, index: str, rows: pa.Table, identity: str | None = None) -> int:
        """Write rows with their versions, never over a newer one; deleted rows are marked.

        Refused if the index has another identity than the given one. Returns how many rows were
        not older than the stored ones.
        """
        ...

    def digest(self, index: str, within: KeyRange, shape: TableShape) -> RangeDigest:
        """Count and checksum of the rows of a range that are not deleted."""
        ...

    def checksums(self, index: str, within: KeyRange, shape: TableShape) -> dict[Key, int]:
        """The checksum of every row of a range that is not deleted."""
        ...

    def current(self) -> str | None:
        """The index that the alias points to."""
        ...

    def switch(self, index: str, noted: SwitchRecord, together: Together) -> None:
        """Point the alias to an index atomically for all readers, and do `together` with it.

        `together` records the switch (`store.indexes.record_switch`), by which `reverse` finds the
        previous index. If the alias already points to the index, an earlier attempt has switched
        it, and `noted.previous` is what it pointed to.
        """
        ...

    def give_up(self, index: str, together: Together) -> None:
        """Exclude an index from later switches, and do `together` with it.

        Raises `IndexInUse` if the alias points to it. The alias is locked until `together` has
        ended (`store.indexes.held`), so that it cannot be switched to the index meanwhile.
        """
        ...

    def drop(self, index: str) -> None:
        """Remove an index."""
        ...
