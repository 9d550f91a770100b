"""Structured log records of a group.

    barrier.settled barrier='nightly' round=4 rendezvous='satisfied' …

The event name is in the record's `event`, the parameters are in its `facts`.
"""

from __future__ import annotations

import logging
from collections import Counter
from time import monotonic

MAX_PER_SECOND = 5
"""Warnings of one event that are logged individually within a second."""

log = logging.getLogger("tidegate.group")


def log_event(event: str, level: int = logging.INFO, /, **facts: object) -> None:
    """Log one event."""
    if log.isEnabledFor(level):
        rendered = " ".join(f"{name}={value!r}" for name, value in facts.items())
        log.log(level, "%s %s", event, rendered, extra={"event": event, "facts": facts})


class RateLimitedLog:
    """Logs warnings that remote peers can cause: a few per event and second, the rest counted."""

    def __init__(self) -> None:
        self._second = 0
        self._seen: Counter[str] = Counter()

    def warn(self, event: str, /, **facts: object) -> None:
        """Log the event, unless it was logged too often within this second."""
        if int(monotonic()) != self._second:
            self._start_second()
        self._seen[event] += 1
        if self._seen[event] <= MAX_PER_SECOND:
            log_event(event, logging.WARNING, **facts)

    def _start_second(self) -> None:
        for event, occurrences in self._seen.items():
            if occurrences > MAX_PER_SECOND:
                log_event(event, logging.WARNING, not_logged=occurrences - MAX_PER_SECOND)
        self._second = int(monotonic())
        self._seen.clear()
