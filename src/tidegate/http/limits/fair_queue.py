"""A queue that serves clients in turn, so that one client delays another by one item at most.

Pure: it decides what starts next and runs nothing.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items of clients, started in turn over the clients and in order within each.

    At most `slots` items run at the same time. Of two or more slots one client has at most all but
    one, so that another client finds a free slot even while long items run.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._most = max(1, slots - 1)
        self._waiting: dict[str, deque[T]] = {}
        """In the order of their turns; only clients that have something waiting."""
        self._running: Counter[str] = Counter()

    def put(self, client: str, item: T) -> None:
        """Add an item behind the others of its client."""
        self._waiting.setdefault(client, deque()).append(item)

    def take(self) -> tuple[str, T] | None:
        """The item that starts now, with its client; None while nothing may start."""
        if self._running.total() >= self._slots:
            return None
        below = (client for client in self._waiting if self._running[client] < self._most)
        client = next(below, None)
        if client is None:
            return None
        items = self._waiting.pop(client)
        item = items.popleft()
        if items:
            self._waiting[client] = items  # its next turn comes after those of all other clients
        self._running[client] += 1
        return client, item

    def done(self, client: str) -> None:
        """An item of a client has ended."""
        self._running -= Counter((client,))  # a count of zero is removed
