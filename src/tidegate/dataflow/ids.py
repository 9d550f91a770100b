"""The counter of all signal ids of a pipeline."""

from __future__ import annotations

from threading import Lock


class SignalIds:
    """Strictly increasing ids from 1, for both channels; safe to call from any thread.

    >>> ids = SignalIds()
    >>> ids.take(), ids.take()
    (1, 2)
    """

    def __init__(self, last: int = 0) -> None:
        self._last = last
        self._lock = Lock()

    def take(self) -> int:
        """The next id; no other caller ever gets it."""
        with self._lock:
            self._last += 1
            return self._last
