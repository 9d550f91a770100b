"""What happens in a group, as log records that programs can read.

    barrier.settled barrier='nightly' round=4 rendezvous='satisfied' …

The name stands in the record's `event`, the rest in its `facts`.
"""

from __future__ import annotations

import logging
from collections import Counter
from time import monotonic

BRIEF = 5
"""Warnings of one event that are logged one by one within a second."""

log = logging.getLogger("tidegate.group")


def tell(event: str, level: int = logging.INFO, /, **facts: object) -> None:
    """Log one event."""
    if log.isEnabledFor(level):
        told = " ".join(f"{name}={value!r}" for name, value in facts.items())
        log.log(level, "%s %s", event, told, extra={"event": event, "facts": facts})


class Repeated:
    """Logs warnings that others can cause: a few of each event per second, the rest as a number."""

    def __init__(self) -> None:
        self._second = 0
        self._seen: Counter[str] = Counter()

    def tell(self, event: str, /, **facts: object) -> None:
        """Log the event, unless it was logged too often within this second."""
        if int(monotonic()) != self._second:
            self._begin()
        self._seen[event] += 1
        if self._seen[event] <= BRIEF:
            tell(event, logging.WARNING, **facts)

    def _begin(self) -> None:
        for event, number in self._seen.items():
            if number > BRIEF:
                tell(event, logging.WARNING, not_logged=number - BRIEF)
        self._second = int(monotonic())
        self._seen.clear()
