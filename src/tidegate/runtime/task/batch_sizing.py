"""How much data a step reads: enough to be worth a job, little enough not to delay other runs."""

from __future__ import annotations

LEAST = 64 << 20
MOST = 1 << 30
FIRST = 256 << 20
"""Bytes of one step: bounds, and the initial size."""
LONG = 15.0
SHORT = 5.0
"""Seconds: a step that took longer was too large; one that was full and took less was too small."""


def next_step_bytes(size: int, taken: int, seconds: float) -> int:
    """The size of the next step, given what the last one took and how long it lasted.

    >>> next_step_bytes(256 << 20, taken=256 << 20, seconds=20.0) >> 20
    128
    >>> next_step_bytes(256 << 20, taken=256 << 20, seconds=0.5) >> 20
    512
    >>> next_step_bytes(256 << 20, taken=1 << 20, seconds=0.5) >> 20
    256
    """
    if seconds > LONG:
        return max(LEAST, min(size, taken) // 2)
    if seconds < SHORT and taken >= size:
        return min(MOST, size * 2)
    return size


IDLE = 1.0
LONGEST_WAIT = 5.0
"""Seconds: gathering data is taken when nothing has followed for so long, or when the first of it
has waited for so long."""


def ready_at(first: float, last: float) -> float:
    """When to take gathering data, of which the first and the last message arrived then.

    >>> ready_at(first=100.0, last=100.0)
    101.0
    >>> ready_at(first=100.0, last=104.9)
    105.0
    """
    return min(first + LONGEST_WAIT, last + IDLE)
