"""A queue that serves clients in turn, so that the work of one delays another by one piece at most.

Pure: it decides what starts next and runs nothing.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items of clients, started in turn over the clients and in order within each.

    At most `slots` items are at work. Of two or more slots one client holds at most all but one,
    so that another client that comes finds a free one although the items at work are long.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._most = max(1, slots - 1)
        self._waiting: dict[str, deque[T]] = {}
        """In the order of their turns; only clients that have something waiting."""
        self._at_work: Counter[str] = Counter()

    def put(self, client: str, item: T) -> None:
        """Add an item behind the others of its client."""
        self._waiting.setdefault(client, deque()).append(item)

    def take(self) -> tuple[str, T] | None:
        """The item that starts now, with its client; None while nothing may start."""
        if self._at_work.total() >= self._slots:
            return None
        client = next((it for it in self._waiting if self._at_work[it] < self._most), None)
        if client is None:
            return None
        items = self._waiting.pop(client)
        item = items.popleft()
        if items:
            self._waiting[client] = items  # its next turn comes after those of all other clients
        self._at_work[client] += 1
        return client, item

    def done(self, client: str) -> None:
        """An item of a client is no longer at work."""
        self._at_work -= Counter((client,))  # a count of zero is removed
