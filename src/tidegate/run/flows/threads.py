"""The threads of a flow worker: each takes what is next, and nothing waits behind one that hangs.

They are daemons: a handler that listens to nobody does not keep its process from ending.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Generic, TypeVar

T = TypeVar("T")


class Threads(Generic[T]):
    """So many threads, which perform what is put before them."""

    def __init__(self, number: int, name: str, perform: Callable[[T], None]) -> None:
        self._waiting: SimpleQueue[T | None] = SimpleQueue()
        self._perform = perform
        self._number = number
        for count in range(number):
            Thread(target=self._run, name=f"{name}-{count}", daemon=True).start()

    def put(self, work: T) -> None:
        """Perform this when a thread is free."""
        self._waiting.put(work)

    def take_back(self) -> list[T]:
        """What no thread has begun with; none will."""
        found = []
        try:
            while (work := self._waiting.get_nowait()) is not None:
                found.append(work)
        except Empty:
            pass
        return found

    def close(self) -> None:
        """Let every thread end after what it is at."""
        for _ in range(self._number):
            self._waiting.put(None)

    def _run(self) -> None:
        while (work := self._waiting.get()) is not None:
            self._perform(work)
