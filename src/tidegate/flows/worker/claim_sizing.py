"""How many tasks a worker claims at once: enough to keep its threads busy, and no more.

A claimed task cannot run elsewhere. A worker therefore claims one task per idle thread, and more
only where tasks are so short that its threads finish them within `LOOKAHEAD`. Threads that have
been at one task for longer than that do not count. A claimed task that does not start within
`START_BOUND`, because tasks take longer than before, is returned.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

LOOKAHEAD = 0.25
"""Seconds of work that a worker may claim ahead of its idle threads."""
START_BOUND = 4 * LOOKAHEAD
"""Seconds after which a claimed task that no thread has started is returned."""
MAX_IN_FLIGHT = 500
"""Tasks that a worker may have in flight, however short they are."""
WEIGHT = 0.2
"""Weight of the latest task in the moving average of durations."""
SHORTEST = 1e-5


def idle(threads: int, in_flight: Mapping[str, int]) -> int:
    """Threads without a task."""
    return max(0, threads - sum(in_flight.values()))


def ahead(
    threads: int, in_flight: Mapping[str, int], durations: Mapping[str, float], queue: str
) -> int:
    """How many tasks of a queue the threads finish within `LOOKAHEAD`, beside those in flight.

    >>> ahead(8, {}, {}, "a"), ahead(8, {"a": 8}, {"a": 10.0}, "a"), ahead(8, {}, {"a": 0.01}, "a")
    (0, 0, 200)
    """
    if queue not in durations or threads < 1:
        return 0
    seconds = (number * durations.get(name, LOOKAHEAD) for name, number in in_flight.items())
    backlog = sum(seconds) / threads
    count = int(max(0.0, LOOKAHEAD - backlog) * threads / max(durations[queue], SHORTEST))
    return max(0, min(MAX_IN_FLIGHT - sum(in_flight.values()), count))


@dataclass(frozen=True, slots=True)
class ClaimFacts:
    """Tasks in flight and average durations by queue, and how many more each queue allows."""

    threads: int
    in_flight: Mapping[str, int]
    durations: Mapping[str, float]
    free: Mapping[str, int | None]
    """By queue, in the order in which they are claimed from; None: no limit."""
    generators: frozenset[str] = frozenset()
    stuck: int = 0
    """Threads that have been at one task for longer than `LOOKAHEAD`."""


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """Tasks to claim: at most so many of each queue, and so many in total."""

    by_queue: Mapping[str, int]
    total: int


def claim_requests(facts: ClaimFacts, free_generators: int) -> list[ClaimRequest]:
    """What to claim: one task per idle thread, and more from queues with short tasks.

    Short and long tasks are claimed separately; otherwise one idle thread would claim a long task
    from every queue.
    """
    idle_threads = idle(facts.threads, facts.in_flight)
    short = {
        queue: ahead(facts.threads - facts.stuck, facts.in_flight, facts.durations, queue)
        for queue in facts.free
        if queue not in facts.generators
    }
    # A few at a time would cost a transaction each.
    short = {
        queue: number
        for queue, number in short.items()
        if number > idle_threads and 2 * number >= facts.in_flight.get(queue, 0)
    }
    long = [queue for queue in facts.free if queue not in short and queue not in facts.generators]
    requests = [
        ClaimRequest(dict.fromkeys(facts.generators, free_generators), free_generators),
        ClaimRequest(dict.fromkeys(long, idle_threads), idle_threads),
        ClaimRequest(short, max(short.values(), default=0)),
    ]
    allowed = (_within(request, facts.free) for request in requests)
    return [request for request in allowed if request.by_queue]


def _within(request: ClaimRequest, free: Mapping[str, int | None]) -> ClaimRequest:
    """A request reduced to the limits of its queues."""
    allowed = {}
    for queue, number in request.by_queue.items():
        limit = free[queue]
        count = number if limit is None else min(number, limit)
        if count > 0:
            allowed[queue] = count
    return ClaimRequest(allowed, request.total)


class TaskDurations:
    """A moving average of the duration of tasks, by queue."""

    def __init__(self) -> None:
        self._average: dict[str, float] = {}

    def add(self, queue: str, seconds: float) -> None:
        """A task took so long."""
        before = self._average.get(queue, seconds)
        self._average[queue] = before + WEIGHT * (seconds - before)

    @property
    def by_queue(self) -> Mapping[str, float]:
        """Seconds, by queue."""
        return self._average


class TaskCounts:
    """How many tasks of each queue a worker has; not thread-safe."""

    def __init__(self) -> None:
        self.by_queue: dict[str, int] = defaultdict(int)

    def change(self, queue: str, number: int) -> None:
        """So many more, or fewer."""
        self.by_queue[queue] += number
