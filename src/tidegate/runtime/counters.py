"""Named counters of a process, incremented from any thread."""

from __future__ import annotations

from collections import Counter
from threading import Lock


class Counters:
    """Thread-safe counts by name."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._counting = Lock()

    def count(self, name: str) -> None:
        """Increment a counter."""
        with self._counting:
            self._counts[name] += 1

    def counts(self) -> dict[str, int]:
        """All counters and their values."""
        with self._counting:
            return dict(self._counts)
