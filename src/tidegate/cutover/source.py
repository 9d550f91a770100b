"""The source table of a cutover, and its change log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from time import monotonic, sleep
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from tidegate.errors import TableBusy
from tidegate.store import Database
from tidegate.store.cutover import change_capture, change_log, tables
from tidegate.store.cutover.tables import Key, KeyRange, RangeDigest, TableName, TableShape

if TYPE_CHECKING:
    import pyarrow as pa

    from tidegate.store import Connection
    from tidegate.store.cutover.change_log import ChangeBatch, Lag

P = ParamSpec("P")
T = TypeVar("T")
BUSY_BOUND = 60.0
"""Seconds to wait for a lock on the table."""
BUSY_PAUSE = 0.5


@dataclass(frozen=True, slots=True)
class PostgresTable:
    """A table of PostgreSQL with a primary key, to be indexed."""

    table: str
    """As schema.table; without a schema, in `public`."""
    columns: tuple[str, ...] = ()
    """The columns of the index beside the key; by default all."""
    url: str | None = None
    """The URL of its database; by default the database of the flow."""

    @contextmanager
    def open(self, own: Database) -> Iterator[TableSource]:
        """Open it; `own` is the database of the flow."""
        if self.url is None:
            yield TableSource(own, TableName.parse(self.table), self.columns)
            return
        with Database(self.url).attach() as database:
            yield TableSource(database, TableName.parse(self.table), self.columns)


class TableSource:
    """An open source table."""

    def __init__(self, database: Database, table: TableName, columns: tuple[str, ...]) -> None:
        self._database = database
        self.table = table
        self._columns = columns

    @property
    def url(self) -> str:
        """The URL of its database."""
        return self._database.url

    def shape(self, columns: Sequence[str] = ()) -> TableShape:
        """Its key and the requested columns."""
        whole = self._run(tables.shape_of)
        chosen = columns or self._columns
        shape = whole.only(chosen, str(self.table)) if chosen else whole
        shape.check_types(str(self.table))
        return shape

    # ── rows ──

    def bound_after(self, low: Key | None, rows: int) -> Key | None:
        """The key that many rows after another; None if there are fewer."""
        return self._run(tables.bound_after, self.shape(), low, rows)

    def pieces(self, within: KeyRange, rows: int) -> list[KeyRange]:
        """A range split into pieces of so many rows."""
        bounds = self._run(tables.bounds_within, self.shape(), within, rows)
        ends = [within.low, *(it for it in bounds if it != within.high), within.high]
        return [KeyRange(low, high) for low, high in pairwise(ends)]

    def digest(self, within: KeyRange, shape: TableShape) -> RangeDigest:
        """Count and checksum of the rows of a range."""
        return self._run(tables.digest, shape, within, "true")

    def checksums(self, within: KeyRange, shape: TableShape) -> dict[Key, int]:
        """The checksum of every row of a range."""
        return self._run(tables.checksums, shape, within, "true")

    def rows_of(self, keys: Sequence[Key], shape: TableShape) -> pa.Table:
        """The current rows of these keys, with their versions."""
        return self._run(change_log.rows_of, shape, keys)

    # ── changes ──

    def start_log(self, bound: float = BUSY_BOUND) -> int:
        """Start logging changes; returns the offset from which on an index needs them.

        Raises `TableBusy` if the table cannot be locked within the bound.
        """
        shape = self.shape()
        deadline = monotonic() + bound
        while True:
            try:
                self._run(change_capture.ensure_log, shape)
                return self._database.transact(change_log.bound)
            except TableBusy:
                if monotonic() > deadline:
                    raise
            sleep(BUSY_PAUSE)

    def head(self) -> int:
        """The offset after everything that is committed now."""
        return self._database.transact(change_log.head)

    def changes(self, offset: int, after: int, most: int) -> ChangeBatch:
        """The next changes from an offset on, after a number."""
        return self._run(change_log.changes, offset, after, most)

    def pending_among(self, offset: int, keys: Sequence[Key]) -> set[Key]:
        """Which of these keys have changed from an offset on."""
        return self._run(change_log.pending_among, offset, keys)

    def lag(self, offset: int, bound: float | None = None) -> Lag:
        """How far an offset is behind the log; `bound` limits the wait for the server."""
        return self._database.transact(lambda c: change_log.lag(c, self.table, offset), bound)

    def holder(self) -> str:
        """A description of the transaction that blocks reading the log."""
        return str(self._database.transact(change_log.holder))

    def register(self, consumer: str) -> int:
        """Retain changes for a consumer, from now on or as before; returns its offset."""
        return self._run(change_log.register_consumer, consumer)

    def registered(self, consumer: str) -> int:
        """The offset from which changes are retained for a consumer; raises `NotFollowed`."""
        return self._run(change_log.start_offset, consumer)

    def consumers(self) -> dict[str, int]:
        """The registered consumers and their offsets."""
        return self._run(change_log.consumers)

    def advance(self, consumer: str, offset: int) -> bool:
        """Store the offset of a consumer and trim the log; whether there is more to trim."""
        return self._run(change_log.commit_offset, consumer, offset) >= change_log.TRIMMED

    def forget_consumer(self, consumer: str) -> None:
        """Retain nothing for a consumer any more."""
        self._run(change_log.remove_consumer, consumer)

    def _run(
        self,
        work: Callable[Concatenate[Connection, TableName, P], T],
        *given: P.args,
        **named: P.kwargs,
    ) -> T:
        """Run an operation on this table, in a transaction of its own."""
        return self._database.transact(lambda c: work(c, self.table, *given, **named))
