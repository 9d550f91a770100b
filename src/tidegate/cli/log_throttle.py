"""A condition that repeats is logged once per second, with how often it was seen meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from threading import Lock
from time import monotonic

SECOND = 1.0
ALIKE = 10
"""Lines per second that are made from one template and differ in what they name."""
KNOWN = 1_000
"""Conditions that are remembered; the count of older ones is dropped."""


@dataclass
class Repeats:
    """How often each key was seen. Pure, apart from what it remembers."""

    most: int = 1
    _seen: dict[Hashable, tuple[float, int, int]] = field(default_factory=dict)
    """Since when, how many were let through since then, how many were not."""

    def note(self, key: Hashable, now: float) -> int | None:
        """None for one too many within a second; else how many were held back before it."""
        since, passed, held = self._seen.pop(key, (now, 0, 0))
        if now - since >= SECOND:
            since, passed = now, 0
        is_passed = passed < self.most
        self._seen[key] = (since, passed + 1, 0) if is_passed else (since, passed, held + 1)
        if len(self._seen) > KNOWN:
            self._seen.pop(next(iter(self._seen)))
        return held if is_passed else None


class OncePerSecond(logging.Filter):
    """Filter of a handler: drops lines that it has logged within the last second."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._texts, self._templates = Repeats(), Repeats(ALIKE)
        self._noting = Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is logged; appends how many like it were not."""
        now, text = self._clock(), record.getMessage()
        with self._noting:
            held = self._texts.note((record.name, text), now)
            alike = None if held is None else self._templates.note((record.name, record.msg), now)
        if held is None or alike is None:
            return False
        if held or alike:
            record.msg, record.args = f"{text} ({held + alike} more like this)", ()
        return True
