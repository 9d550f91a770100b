"""Throttles repeated log lines to one per second, with the number of suppressed ones."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from threading import Lock
from time import monotonic

SECOND = 1.0
ALIKE = 10
"""Lines per second from one template with different arguments."""
KNOWN = 1_000
"""Conditions that are tracked; the counts of older ones are dropped."""


@dataclass
class Repeats:
    """How often each key was seen."""

    most: int = 1
    _seen: dict[Hashable, tuple[float, int, int]] = field(default_factory=dict)
    """Begin of the current second, lines passed since then, lines suppressed."""

    def note(self, key: Hashable, now: float) -> int | None:
        """None if the line is suppressed; else how many were suppressed before it."""
        since, passed, suppressed = self._seen.pop(key, (now, 0, 0))
        if now - since >= SECOND:
            since, passed = now, 0
        is_passed = passed < self.most
        counts = (since, passed + 1, 0) if is_passed else (since, passed, suppressed + 1)
        self._seen[key] = counts
        if len(self._seen) > KNOWN:
            self._seen.pop(next(iter(self._seen)))
        return suppressed if is_passed else None


class OncePerSecond(logging.Filter):
    """Filter of a handler: drops lines that it logged within the last second."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._texts, self._templates = Repeats(), Repeats(ALIKE)
        self._lock = Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is logged; appends how many like it were not."""
        now, text = self._clock(), record.getMessage()
        with self._lock:
            same = self._texts.note((record.name, text), now)
            alike = None if same is None else self._templates.note((record.name, record.msg), now)
        if same is None or alike is None:
            return False
        if same or alike:
            record.msg, record.args = f"{text} ({same + alike} more like this)", ()
        return True
