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
        self._at_work: list[T | None] = [None] * number
        for place in range(number):
            Thread(target=self._run, args=(place,), name=f"{name}-{place}", daemon=True).start()

    def put(self, work: T) -> None:
        """Perform this when a thread is free."""
        self._waiting.put(work)

    @property
    def at_work(self) -> list[T]:
        """What is performed at this moment, one for each thread that is not idle."""
        return [work for work in self._at_work if work is not None]

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
        for _ in self._at_work:
            self._waiting.put(None)

    def _run(self, place: int) -> None:
        while (work := self._waiting.get()) is not None:
            self._at_work[place] = work
            self._perform(work)
            self._at_work[place] = None
