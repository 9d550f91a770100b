"""How many tasks a worker claims at once: enough to keep its threads busy, and no more.

A claim that is not worked on is of no use to anybody. So a worker claims for its idle threads, and
ahead of them only what they do within a moment. Threads that are at one task for longer than that
do nothing within a moment, however short tasks were before; and what was claimed ahead and is not
begun soon, because tasks take longer than they did, goes back to where others find it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

AHEAD = 0.25
"""Seconds of work that a worker may have in hand."""
PATIENCE = 4 * AHEAD
"""Seconds after which what no thread has begun with goes back."""
MOST = 500
"""Tasks that a worker may have in hand, however short they are."""
WEIGHT = 0.2
"""Of the latest task in the mean of how long they take."""
SHORTEST = 1e-5


def idle(threads: int, in_hand: Mapping[str, int]) -> int:
    """Threads that have nothing to do."""
    return max(0, threads - sum(in_hand.values()))


def ahead(threads: int, in_hand: Mapping[str, int], means: Mapping[str, float], queue: str) -> int:
    """How many tasks of a queue to claim ahead of idle threads: what is done within a moment.

    >>> ahead(8, {}, {}, "a"), ahead(8, {"a": 8}, {"a": 10.0}, "a"), ahead(8, {}, {"a": 0.01}, "a")
    (0, 0, 200)
    """
    if queue not in means or threads < 1:
        return 0
    backlog = sum(number * means.get(it, AHEAD) for it, number in in_hand.items()) / threads
    wanted = int(max(0.0, AHEAD - backlog) * threads / max(means[queue], SHORTEST))
    return max(0, min(MOST - sum(in_hand.values()), wanted))


@dataclass(frozen=True, slots=True)
class Facts:
    """What a worker has in hand, how long tasks take, and what it may have more of each queue."""

    threads: int
    in_hand: Mapping[str, int]
    means: Mapping[str, float]
    free: Mapping[str, int | None]
    """By queue, in the order in which they are to be looked at; None: as many as it likes."""
    generators: frozenset[str] = frozenset()
    stuck: int = 0
    """Threads that are at one task for longer than a worker looks ahead."""


@dataclass(frozen=True, slots=True)
class Wish:
    """Tasks to claim: at most so many of each queue, and so many of all."""

    rooms: Mapping[str, int]
    most: int


def wishes(facts: Facts, more_generators: int) -> list[Wish]:
    """What to claim: one task for each idle thread, and of queues with short ones some ahead.

    Those are asked for apart: nobody should claim a long task of every queue for one idle thread.
    """
    waiting = idle(facts.threads, facts.in_hand)
    short = {
        queue: ahead(facts.threads - facts.stuck, facts.in_hand, facts.means, queue)
        for queue in facts.free
        if queue not in facts.generators
    }
    # A few at a time would cost a transaction each.
    short = {
        queue: number
        for queue, number in short.items()
        if number > waiting and 2 * number >= facts.in_hand.get(queue, 0)
    }
    long = [it for it in facts.free if it not in short and it not in facts.generators]
    asked = [
        Wish(dict.fromkeys(facts.generators, more_generators), more_generators),
        Wish(dict.fromkeys(long, waiting), waiting),
        Wish(short, max(short.values(), default=0)),
    ]
    return [wish for wish in (_within(it, facts.free) for it in asked) if wish.rooms]


def _within(wish: Wish, free: Mapping[str, int | None]) -> Wish:
    """What is allowed of a wish."""
    rooms = {}
    for queue, number in wish.rooms.items():
        most = free[queue]
        allowed = number if most is None else min(number, most)
        if allowed > 0:
            rooms[queue] = allowed
    return Wish(rooms, wish.most)


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
