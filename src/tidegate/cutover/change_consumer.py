"""Following a table: its changes are applied to an index, again and again, in order.

Everything up to the oldest transaction that is still running is read, page by page. A page is a
list of keys; their rows are read as they are at that moment, so many changes of one row are one
write. The offset is told after the write, never before: whoever takes over repeats a little.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from tidegate.cutover.decide import Patience, is_worth_telling
from tidegate.errors import (
    ClaimLost,
    FlowCancelled,
    FlowRunClosed,
    IndexDiffers,
    NotFollowed,
    OffsetAhead,
    TableChanged,
)
from tidegate.faults import crash_point

if TYPE_CHECKING:
    from tidegate.cutover.source import Source
    from tidegate.cutover.targets import Indexes
    from tidegate.store.cutover.tables import TableShape

log = logging.getLogger(__name__)

PAGE = 1000
"""Changes that are applied at once."""
IDLE = 0.1
"""Seconds between two looks at a log in which nothing was."""
STALL = 5.0
"""Seconds without movement after which it is said who holds it up."""
TRIM_EVERY, TRIM_FOR = 5.0, 1.0
"""Seconds from one shortening of the log to the next, and for which changes wait behind it."""
ENDS = (ClaimLost, FlowCancelled, FlowRunClosed, IndexDiffers, NotFollowed, OffsetAhead)
"""What ends a follower at once: the work is somebody else's, or nobody's, or of no use."""


class ConsumerLoop:
    """Applies the changes of a table to one index, from an offset on."""

    def __init__(self, source: Source, indexes: Indexes, index: str, offset: int) -> None:
        self._source = source
        self._indexes = indexes
        self.index = index
        self.identity = indexes.identity(index)
        self.offset = offset
        """All changes of transactions before it are in the index."""
        self.applied = 0
        self._shape: TableShape | None = None

    def catch_up(self, on_page: Callable[[int], None] = lambda _: None) -> int:
        """Apply everything that can be read; `on_page` hears of every page, with its changes.

        Raises `OffsetAhead` where the table's server has not come as far as the index.
        """
        after, before = -1, self.applied
        while True:
            found = self._source.changes(self.offset, after, PAGE)
            self._check_bound(found.bound)
            if found.rows:
                self._apply(list(dict.fromkeys(it.key for it in found.rows)))
                self.applied += len(found.rows)
                self.offset, after = found.rows[-1].xid, found.rows[-1].number
            if len(found.rows) < PAGE:
                self.offset = max(self.offset, found.bound)
                return self.applied - before
            on_page(len(found.rows))

    def _check_bound(self, bound: int) -> None:
        """An offset is a bound that was read before, and on one server bounds never go back."""
        if bound < self.offset:
            raise OffsetAhead(self.index, str(self._source.table), self.offset, bound)

    def _apply(self, keys: list[tuple[str, ...]]) -> None:
        if self._shape is None:
            self._shape = self._source.shape(self._indexes.columns(self.index))
        try:
            rows = self._source.rows_of(keys, self._shape)
        except TableChanged:
            self._shape = None  # asked for again when the changes are tried again
            raise
        crash_point("cutover.apply.before_write")
        self._indexes.write(self.index, rows, self.identity)
        crash_point("cutover.apply.after_write")


class ChangeConsumer:
    """Lets a follower work until it is told to end, bears refusals, and tells how far it is."""

    def __init__(
        self,
        follower: ConsumerLoop,
        source: Source,
        tell: Callable[[int], None],
        complain: Callable[[str], None],
        patience: float,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._follower = follower
        self._source = source
        self._tell = tell
        self._complain = complain
        self._check = check
        self._patience = Patience(follower.index, patience)
        self._told = follower.offset
        self._told_at = self._moved_at = monotonic()
        self._trimmed_at = 0.0
        self._complaint: str | None = None
        """What was said last; nobody knows at first what another has said before it died."""

    def round(self, watermark: int | None) -> float:
        """Apply what there is; answers for how long to wait until the next round.

        `watermark` is what somebody waits for, if anybody does. However much there is, `check` is
        called every now and then, and may raise to end it.
        """
        before = self._follower.offset
        try:
            applied = self._follower.catch_up(lambda page: self._turn(page, watermark))
            self._say(applied, watermark)
            self._look(before)
            self._trim()
        except ENDS:
            raise
        except Exception as refusal:  # noqa: BLE001  whatever a source or a target refuses with
            pause = self._patience.bear(refusal, monotonic())
            log.warning("%s: changes wait, %s", self._follower.index, refusal)
            self._set_complaint(f"{type(refusal).__name__}: {refusal}")
            return pause
        self._patience.relieve()
        return IDLE

    def _turn(self, applied: int, watermark: int | None) -> None:
        """A page is over. The offset stays where it is within a transaction of many pages."""
        self._check()
        self._say(applied, watermark)

    def _say(self, applied: int, watermark: int | None) -> None:
        offset, now = self._follower.offset, monotonic()
        if is_worth_telling(self._told, offset, applied, now - self._told_at, watermark):
            self._tell(offset)
            self._told, self._told_at = offset, now

    def _look(self, before: int) -> None:
        """Say who holds it up when it does not move although there is something ahead."""
        now = monotonic()
        if self._follower.offset > before:
            self._moved_at = now
            self._set_complaint("")
        elif self._complaint is None:
            self._set_complaint("")
        elif now - self._moved_at > STALL:
            self._moved_at = now
            is_behind = self._source.head() > self._follower.offset
            self._set_complaint(self._source.holder() if is_behind else "")

    def _set_complaint(self, text: str) -> None:
        if text != self._complaint:
            self._complain(text)
            self._complaint = text

    def _trim(self) -> None:
        begun = monotonic()
        if begun - self._trimmed_at <= TRIM_EVERY:
            return
        while self._source.tell_offset(self._follower.identity, self._told):
            self._check()
            if monotonic() - begun > TRIM_FOR:
                return  # changes come first; the next round goes on with it
        self._trimmed_at = begun
