"""Receipts: whoever sends a barrier can learn that it arrived, or who held it up.

A receipt is resolved by the thread of the collecting end and failed by the ledger's own
watch, never by the thread that waits for it; with nobody waiting it comes out the same. The
first outcome stays: a barrier that arrives after its bound changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from math import inf
from threading import Condition, Event, Lock, Thread
from time import monotonic

from tidegate.dataflow import Barrier, Carrier
from tidegate.errors import BarrierTimeout, BarrierWithdrawn, TidegateError, listed

log = logging.getLogger(__name__)

WARN_AT = 0.5
"""The share of a bound after which a barrier that is still open is warned about."""


class ReceiptState(Enum):
    """Where a receipt stands. It leaves `OPEN` once."""

    OPEN = "open"
    COLLECTED = "collected"
    FAILED = "failed"


class Receipt:
    """The answer to one barrier."""

    def __init__(
        self, barrier: Barrier, seconds: float | None, via: Carrier = Carrier.DATA
    ) -> None:
        self.barrier = barrier
        self.seconds = seconds
        self.via = via
        self.sent_at = monotonic()
        self.warned = False
        self._passed: set[str] = set()
        self._lock = Lock()
        self._settled = Event()
        self._error: TidegateError | None = None

    @property
    def state(self) -> ReceiptState:
        """Open, collected or failed."""
        if not self._settled.is_set():
            return ReceiptState.OPEN
        return ReceiptState.COLLECTED if self._error is None else ReceiptState.FAILED

    @property
    def error(self) -> TidegateError | None:
        """Why it failed, if it did."""
        return self._error

    def wait(self, timeout: float | None = None) -> None:
        """Return when the barrier was collected, raise when it failed.

        Without a `timeout` of the caller's own the receipt's bound is the bound. A caller that
        gives up earlier gets a TimeoutError, and the receipt stays as it is.
        """
        if not self._settled.wait(timeout):
            raise TimeoutError(f"{self.barrier} is still open after {timeout:g} s")
        if self._error is not None:
            raise self._error

    def settled_within(self, timeout: float) -> bool:
        """Wait for an outcome, good or bad; whether there is one."""
        return self._settled.wait(max(0.0, timeout))

    def settle(self, error: TidegateError | None = None) -> bool:
        """Give the outcome, unless it has one; whether this call gave it."""
        with self._lock:
            if self._settled.is_set():
                return False
            self._error = error
            self._settled.set()
            return True

    def note_passed(self, processor: str) -> None:
        """Remember that a processor has forwarded the barrier."""
        with self._lock:
            self._passed.add(processor)

    @property
    def passed(self) -> set[str]:
        """The processors that have forwarded the barrier."""
        with self._lock:
            return set(self._passed)

    @property
    def due(self) -> float:
        """When the watch has to look at it next."""
        if self.seconds is None:
            return inf
        return self.sent_at + self.seconds * (1.0 if self.warned else WARN_AT)


@dataclass(frozen=True, slots=True)
class Holdup:
    """Who keeps a barrier from the collecting end."""

    missing: tuple[str, ...]
    """Upstreams that have not delivered it to a fan-in where others have."""
    held_by: tuple[str, ...]
    """Processors that have it from all their upstreams and have not forwarded it."""


def find_holdup(upstreams: Mapping[str, Iterable[str]], passed: set[str]) -> Holdup:
    """Who holds a barrier up, given who feeds whom and who has forwarded it.

    >>> find_holdup({"a": [], "b": ["a"], "c": ["a"], "join": ["b", "c"]}, {"a", "b"})
    Holdup(missing=('c',), held_by=('c',))
    """
    waiting = {name: list(feeds) for name, feeds in upstreams.items() if name not in passed}
    held_by = tuple(name for name, feeds in waiting.items() if passed.issuperset(feeds))
    pending = (feeds for feeds in waiting.values() if not passed.isdisjoint(feeds))
    owed = (feed for feeds in pending for feed in feeds)
    missing = tuple(dict.fromkeys(feed for feed in owed if feed not in passed))
    return Holdup(missing or held_by, held_by)


class Ledger:
    """The open receipts of a pipeline, and the watch that fails those whose bound passes."""

    def __init__(
        self, upstreams: Mapping[str, Iterable[str]], on_timeout: Callable[[Barrier], None]
    ) -> None:
        self._upstreams = {name: tuple(feeds) for name, feeds in upstreams.items()}
        self._on_timeout = on_timeout
        self._open: dict[int, Receipt] = {}
        self._pending: dict[tuple[str, Carrier], Receipt] = {}
        self._changed = Condition()
        self._stopped = False
        self._watch = Thread(target=self._keep_watch, name="tidegate-receipts", daemon=True)
        self._watch.start()

    def open(self, barrier: Barrier, seconds: float | None, via: Carrier = Carrier.DATA) -> Receipt:
        """A receipt for a barrier that is about to be sent."""
        receipt = Receipt(barrier, seconds, via)
        with self._changed:
            self._open[barrier.id] = receipt
            if not barrier.is_end:
                self._pending[barrier.run, via] = receipt
            self._changed.notify()
        return receipt

    def pending(self, run: str, via: Carrier) -> Receipt | None:
        """The barrier, other than END, that is on its way for this run and channel."""
        with self._changed:
            return self._pending.get((run, via))

    def note_passed(self, processor: str, barrier: Barrier) -> None:
        """A processor has forwarded the barrier."""
        receipt = self._open.get(barrier.id)
        if receipt is not None:
            receipt.note_passed(processor)

    def collect(self, barrier: Barrier) -> None:
        """The collecting end has seen the barrier; too late is a no-op."""
        receipt = self._open.get(barrier.id)
        if receipt is not None:
            self._settle(receipt, None)

    def withdraw_all(self, reason: str, cause: BaseException | None) -> None:
        """Give up everything that is open."""
        for receipt in tuple(self._open.values()):
            self._withdraw(receipt, reason, cause)

    def withdraw_pending(self, reason: str, run: str, via: Carrier) -> None:
        """Give up what is pending of one run and channel; its END stays open."""
        receipt = self.pending(run, via)
        if receipt is not None:
            self._withdraw(receipt, reason, None)

    def _withdraw(self, receipt: Receipt, reason: str, cause: BaseException | None) -> None:
        error = BarrierWithdrawn(barrier=str(receipt.barrier), reason=reason)
        error.__cause__ = cause
        self._settle(receipt, error)

    def holdup(self, receipt: Receipt) -> Holdup:
        """Who keeps this receipt open."""
        return find_holdup(self._upstreams, receipt.passed)

    def stop(self) -> None:
        """End the watch."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def _settle(self, receipt: Receipt, error: TidegateError | None) -> None:
        barrier = receipt.barrier
        with self._changed:
            self._open.pop(barrier.id, None)
            if self._pending.get((barrier.run, receipt.via)) is receipt:
                del self._pending[barrier.run, receipt.via]
        receipt.settle(error)

    def _keep_watch(self) -> None:
        while True:
            with self._changed:
                if self._stopped:
                    return
                now = monotonic()
                due = [receipt for receipt in self._open.values() if receipt.due <= now]
                if not due:
                    next_due = min((receipt.due for receipt in self._open.values()), default=inf)
                    self._changed.wait(None if next_due == inf else next_due - now)
            for receipt in due:
                self._look_at(receipt)

    def _look_at(self, receipt: Receipt) -> None:
        assert receipt.seconds is not None, "what has no bound is never due"
        holdup = self.holdup(receipt)
        if not receipt.warned:
            receipt.warned = True
            log.warning(
                "%s has waited %.3g s of %.3g s; not delivered by %s; held up at %s",
                receipt.barrier,
                monotonic() - receipt.sent_at,
                receipt.seconds,
                listed(holdup.missing),
                listed(holdup.held_by),
            )
            return
        error = BarrierTimeout(
            str(receipt.barrier), receipt.seconds, holdup.missing, holdup.held_by
        )
        # Withdrawn first: whoever waited for the outcome may send the next barrier right away.
        self._on_timeout(receipt.barrier)
        self._settle(receipt, error)
