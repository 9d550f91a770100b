"""Waiting for a condition, with a bound: what tests do instead of sleeping."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep

LONG = 30.0


def wait_until(condition: Callable[[], bool], bound: float = LONG) -> None:
    """Return when the condition is true; fail when it does not come true in time."""
    deadline = monotonic() + bound
    while not condition():
        assert monotonic() < deadline, f"the condition did not come true within {bound:g} s"
        sleep(0.001)
