"""How much a step takes: enough to be worth a job, little enough that others get their turn."""

from __future__ import annotations

LEAST = 64 << 20
MOST = 1 << 30
FIRST = 256 << 20
"""Bytes of one run in one step: bounds, and where to begin."""
LONG = 15.0
SHORT = 5.0
"""Seconds: a step that took longer was too large, one that was full and shorter too small."""


def next_share(share: int, taken: int, seconds: float) -> int:
    """The share for the next step, given what the last one took and how long that lasted.

    >>> next_share(256 << 20, taken=256 << 20, seconds=20.0) >> 20
    128
    >>> next_share(256 << 20, taken=256 << 20, seconds=0.5) >> 20
    512
    >>> next_share(256 << 20, taken=1 << 20, seconds=0.5) >> 20
    256
    """
    if seconds > LONG:
        return max(LEAST, min(share, taken) // 2)
    if seconds < SHORT and taken >= share:
        return min(MOST, share * 2)
    return share


QUIET = 1.0
PATIENCE = 5.0
"""Seconds: data that gathers is taken when nothing has followed for so long, or the first of it
has waited for so long."""


def ripe_at(since: float, latest: float) -> float:
    """When to take data that nobody waits for, of which the first and the last came then.

    >>> ripe_at(since=100.0, latest=100.0)
    101.0
    >>> ripe_at(since=100.0, latest=104.9)
    105.0
    """
    return min(since + PATIENCE, latest + QUIET)
