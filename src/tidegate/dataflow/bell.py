"""Wakes a thread that sleeps until one of several conditions has changed.

A `Bell` belongs to one sleeping thread and may be rung by any. Ringing costs one attribute
read while the owner is awake, which is why channels can ring it for every message.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Final, final


@final
class Bell:
    """Wakes the one thread that sleeps on it.

    The owner first sets a flag and then checks its condition; other threads first change the
    condition and then check the flag. So one of the two always sees the other, and no ring is lost.
    """

    def __init__(self) -> None:
        self._asleep = False
        self._rung: Final = Event()

    def ring(self) -> None:
        """Wake the owner if it sleeps."""
        if self._asleep:
            # In this order: cleared after the ring, it could hide the owner's next sleep.
            self._asleep = False
            self._rung.set()

    def sleep_unless(self, ready: Callable[[], bool], timeout: float | None) -> None:
        """Return at once when `ready()`, else after the next ring or the timeout."""
        self._rung.clear()
        self._asleep = True
        try:
            if not ready():
                self._rung.wait(timeout)
        finally:
            self._asleep = False
