"""Waiting for a condition, with a bound: what tests do instead of sleeping."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep

LONG = 60.0
SHORTEST, LONGEST, GROWTH = 0.001, 0.03, 1.2
"""Seconds between two looks: many conditions are queries, and other tests need the processor."""


def wait_until(condition: Callable[[], bool], bound: float = LONG) -> None:
    """Return when the condition is true; fail when it does not come true in time."""
    deadline = monotonic() + bound
    pause = SHORTEST
    while not condition():
        assert monotonic() < deadline, f"the condition did not come true within {bound:g} s"
        sleep(pause)
        pause = min(LONGEST, pause * GROWTH)
