"""What a process has done so far, counted by whichever of its threads does it."""

from __future__ import annotations

from collections import Counter
from threading import Lock


class Counters:
    """Counts, by what is counted."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._counting = Lock()

    def count(self, what: str) -> None:
        """One more of these."""
        with self._counting:
            self._counts[what] += 1

    def counts(self) -> dict[str, int]:
        """All that was counted so far."""
        with self._counting:
            return dict(self._counts)
