"""How many tasks a worker claims at once: enough to keep its threads busy, and no more.

A claim that is not worked on is of no use to anybody. So a worker claims for its idle threads, and
ahead of them only what they do within a moment.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

AHEAD = 0.25
"""Seconds of work that a worker may have in hand."""
MOST = 500
"""Tasks that a worker may have in hand, however short they are."""
WEIGHT = 0.2
"""Of the latest task in the mean of how long they take."""
SHORTEST = 1e-5


def room(threads: int, in_hand: Mapping[str, int], means: Mapping[str, float], queue: str) -> int:
    """How many tasks of a queue to claim, given how many are in hand and how long each takes.

    >>> room(8, {}, {}, "a"), room(8, {"a": 8}, {"a": 10.0}, "a"), room(8, {}, {"a": 0.01}, "a")
    (8, 0, 200)
    """
    idle = max(0, threads - sum(in_hand.values()))
    backlog = sum(number * means.get(it, AHEAD) for it, number in in_hand.items()) / threads
    mean = max(means.get(queue, AHEAD * threads), SHORTEST)
    ahead = int(max(0.0, AHEAD - backlog) * threads / mean)
    return max(0, min(MOST - sum(in_hand.values()), max(idle, ahead)))


class Means:
    """How long the tasks of each queue take, the later ones counting more."""

    def __init__(self) -> None:
        self._means: dict[str, float] = {}

    def add(self, queue: str, seconds: float) -> None:
        """A task took so long."""
        before = self._means.get(queue, seconds)
        self._means[queue] = before + WEIGHT * (seconds - before)

    @property
    def now(self) -> Mapping[str, float]:
        """By queue."""
        return self._means


class InHand:
    """How many tasks of each queue a worker has; its caller holds a lock."""

    def __init__(self) -> None:
        self.by_queue: dict[str, int] = defaultdict(int)

    def change(self, queue: str, number: int) -> None:
        """So many more, or fewer."""
        self.by_queue[queue] += number
