"""Change consumer: applies the change log of a table to an index, in order.

The log is read page by page up to the oldest running transaction. A page is a list of keys, whose
current rows are read, so many changes of one row are one write. The offset is stored after the
write, never before: after a failure a few changes are applied again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from tidegate.cutover.decide import RetryBudget, should_store_offset
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
    from tidegate.cutover.source import TableSource
    from tidegate.cutover.targets import Indexes
    from tidegate.store.cutover.tables import TableShape

log = logging.getLogger(__name__)

PAGE = 1000
"""Changes that are applied together."""
IDLE = 0.1
"""Seconds between two reads of an empty log."""
STALL = 5.0
"""Seconds without progress after which the blocking transaction is reported."""
TRIM_EVERY, TRIM_FOR = 5.0, 1.0
"""Seconds between two trims of the log, and the longest that changes wait behind one."""
ENDS = (ClaimLost, FlowCancelled, FlowRunClosed, IndexDiffers, NotFollowed, OffsetAhead)
"""Errors that end a consumer at once: its claim or run is gone, or the index is unusable."""


class ChangeApplier:
    """Applies the changes of a table to one index, from an offset on."""

    def __init__(self, source: TableSource, indexes: Indexes, index: str, offset: int) -> None:
        self._source = source
        self._indexes = indexes
        self.index = index
        self.identity = indexes.identity(index)
        self.offset = offset
        """The index has all changes of earlier transactions."""
        self.applied = 0
        self._shape: TableShape | None = None

    def catch_up(self, on_page: Callable[[int], None] = lambda _: None) -> int:
        """Apply everything that can be read; calls `on_page` with the size of each full page.

        Raises `OffsetAhead` if the log of the table ends before the offset of the index.
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
        """Offsets are earlier bounds, and on one server bounds never decrease."""
        if bound < self.offset:
            raise OffsetAhead(self.index, str(self._source.table), self.offset, bound)

    def _apply(self, keys: list[tuple[str, ...]]) -> None:
        if self._shape is None:
            self._shape = self._source.shape(self._indexes.columns(self.index))
        try:
            rows = self._source.rows_of(keys, self._shape)
        except TableChanged:
            self._shape = None  # read again with the next attempt
            raise
        crash_point("cutover.apply.before_write")
        self._indexes.write(self.index, rows, self.identity)
        crash_point("cutover.apply.after_write")


class ChangeConsumer:
    """Runs a `ChangeApplier` in rounds: retries failures, stores offsets, reports blockers."""

    def __init__(
        self,
        applier: ChangeApplier,
        source: TableSource,
        store_offset: Callable[[int], None],
        report_blocked: Callable[[str], None],
        patience: float,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._applier = applier
        self._source = source
        self._store_offset = store_offset
        self._report_blocked = report_blocked
        self._check = check
        self._retries = RetryBudget(applier.index, patience)
        self._stored = applier.offset
        self._stored_at = self._moved_at = monotonic()
        self._trimmed_at = 0.0
        self._blocked_by: str | None = None
        """What was reported last; unknown at first, since an earlier attempt may have reported."""

    def round(self, watermark: int | None) -> float:
        """Apply all available changes; returns how long to wait before the next round.

        `watermark` is the offset that the switch waits for, if any. `check` is called after each
        page and may raise to end the round.
        """
        before = self._applier.offset
        try:
            applied = self._applier.catch_up(lambda page: self._on_page(page, watermark))
            self._store(applied, watermark)
            self._check_progress(before)
            self._trim()
        except ENDS:
            raise
        except Exception as error:  # noqa: BLE001  sources and targets raise anything
            pause = self._retries.pause_after(error, monotonic())
            log.warning("%s: retrying changes after %s", self._applier.index, error)
            self._set_blocked(f"{type(error).__name__}: {error}")
            return pause
        self._retries.reset()
        return IDLE

    def _on_page(self, applied: int, watermark: int | None) -> None:
        """After a page; within a transaction of many pages the offset does not move."""
        self._check()
        self._store(applied, watermark)

    def _store(self, applied: int, watermark: int | None) -> None:
        offset, now = self._applier.offset, monotonic()
        if should_store_offset(self._stored, offset, applied, now - self._stored_at, watermark):
            self._store_offset(offset)
            self._stored, self._stored_at = offset, now

    def _check_progress(self, before: int) -> None:
        """Report the blocking transaction if there are changes ahead and no progress."""
        now = monotonic()
        if self._applier.offset > before:
            self._moved_at = now
            self._set_blocked("")
        elif self._blocked_by is None:
            self._set_blocked("")
        elif now - self._moved_at > STALL:
            self._moved_at = now
            is_behind = self._source.head() > self._applier.offset
            self._set_blocked(self._source.holder() if is_behind else "")

    def _set_blocked(self, text: str) -> None:
        if text != self._blocked_by:
            self._report_blocked(text)
            self._blocked_by = text

    def _trim(self) -> None:
        started = monotonic()
        if started - self._trimmed_at <= TRIM_EVERY:
            return
        while self._source.advance(self._applier.identity, self._stored):
            self._check()
            if monotonic() - started > TRIM_FOR:
                return  # changes come first; the next round continues
        self._trimmed_at = started
