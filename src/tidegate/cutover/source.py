"""The table that is indexed, and the log of its changes."""

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
"""Seconds for which a moment without writers is looked for."""
BUSY_PAUSE = 0.5


@dataclass(frozen=True, slots=True)
class PostgresTable:
    """A table of PostgreSQL, with a primary key, whose rows are to be found in an index."""

    table: str
    """As schema.table; without a schema, in `public`."""
    columns: tuple[str, ...] = ()
    """Those that the index holds, beside the key; by default all."""
    url: str | None = None
    """Of its database; by default it is in the database of the flow."""

    @contextmanager
    def open(self, own: Database) -> Iterator[Source]:
        """Use it; `own` is the database of the flow."""
        if self.url is None:
            yield Source(own, TableName.parse(self.table), self.columns)
            return
        with Database(self.url).attach() as database:
            yield Source(database, TableName.parse(self.table), self.columns)


class Source:
    """A table that is being used."""

    def __init__(self, database: Database, table: TableName, columns: tuple[str, ...]) -> None:
        self._database = database
        self.table = table
        self._columns = columns

    @property
    def url(self) -> str:
        """Of its database."""
        return self._database.url

    def shape(self, columns: Sequence[str] = ()) -> TableShape:
        """Its key and those of its columns that are wanted."""
        whole = self._ask(tables.shape_of)
        wanted = columns or self._columns
        shape = whole.only(wanted, str(self.table)) if wanted else whole
        shape.check_types(str(self.table))
        return shape

    # ── rows ──

    def bound_after(self, low: Key | None, rows: int) -> Key | None:
        """The key so many rows behind another; None when there are fewer."""
        return self._ask(tables.bound_after, self.shape(), low, rows)

    def pieces(self, within: KeyRange, rows: int) -> list[KeyRange]:
        """A range in pieces of so many rows."""
        bounds = self._ask(tables.bounds_within, self.shape(), within, rows)
        ends = [within.low, *(it for it in bounds if it != within.high), within.high]
        return [KeyRange(low, high) for low, high in pairwise(ends)]

    def digest(self, within: KeyRange, shape: TableShape) -> RangeDigest:
        """What the rows of a range come to."""
        return self._ask(tables.digest, shape, within, "true")

    def checksums(self, within: KeyRange, shape: TableShape) -> dict[Key, int]:
        """The checksum of every row of a range."""
        return self._ask(tables.checksums, shape, within, "true")

    def rows_of(self, keys: Sequence[Key], shape: TableShape) -> pa.Table:
        """The rows of these keys as they are, with their versions."""
        return self._ask(change_log.rows_of, shape, keys)

    # ── changes ──

    def begin_log(self, bound: float = BUSY_BOUND) -> int:
        """Log changes from now on; answers the offset from which on an index has to follow them.

        Raises `TableBusy` when there is no moment without writers for as long as that.
        """
        shape = self.shape()
        deadline = monotonic() + bound
        while True:
            try:
                self._ask(change_capture.ensure_log, shape)
                return self._database.transact(change_log.bound)
            except TableBusy:
                if monotonic() > deadline:
                    raise
            sleep(BUSY_PAUSE)

    def head(self) -> int:
        """The offset behind which everything is that was committed so far."""
        return self._database.transact(change_log.head)

    def changes(self, offset: int, after: int, most: int) -> ChangeBatch:
        """The next changes from an offset on, behind a number."""
        return self._ask(change_log.changes, offset, after, most)

    def pending_among(self, offset: int, keys: Sequence[Key]) -> set[Key]:
        """Which of these keys were changed from an offset on."""
        return self._ask(change_log.pending_among, offset, keys)

    def lag(self, offset: int, bound: float | None = None) -> Lag:
        """How much was changed that is not behind an offset; its server may be away so long."""
        return self._database.transact(lambda c: change_log.lag(c, self.table, offset), bound)

    def holder(self) -> str:
        """Who keeps the log from being read any further, for people."""
        return str(self._database.transact(change_log.holder))

    def register(self, follower: str) -> int:
        """Keep changes for a follower, from now on or as before; answers where it begins."""
        return self._ask(change_log.register_consumer, follower)

    def registered(self, follower: str) -> int:
        """From where on changes are kept for a follower; raises `NotFollowed` when they are not."""
        return self._ask(change_log.start_offset, follower)

    def followers(self) -> dict[str, int]:
        """For whom changes are kept, and from which offset on."""
        return self._ask(change_log.consumers)

    def tell_offset(self, follower: str, offset: int) -> bool:
        """Say how far a follower is, and remove some of what nobody needs; whether more is left."""
        return self._ask(change_log.commit_offset, follower, offset) >= change_log.TRIMMED

    def forget_follower(self, follower: str) -> None:
        """Keep nothing for a follower any more."""
        self._ask(change_log.remove_consumer, follower)

    def _ask(
        self,
        work: Callable[Concatenate[Connection, TableName, P], T],
        *given: P.args,
        **named: P.kwargs,
    ) -> T:
        """Do work on this table, in a transaction of its own."""
        return self._database.transact(lambda c: work(c, self.table, *given, **named))
