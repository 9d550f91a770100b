"""The peers: threads connected by `SimpleQueue`s, as one would write them by hand.

They do the least that gives the same result: no bound, no runs, no ids, no failures, no close
but the end of all. A `Token` stands for a barrier, and a join reads one side up to the token,
then the other.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Event, Thread
from typing import Final

Queue = SimpleQueue[object]
END: Final = object()


class Token(Event):
    """A barrier of the queues; it is set when the last thread has it."""


class QueueChain:
    """Threads in a row, each with a queue in front."""

    def __init__(self, length: int) -> None:
        self._queues = [Queue() for _ in range(length)]
        nexts = [queue.put for queue in self._queues[1:]]
        self._threads = [
            _start(pass_on, queue, put)
            for queue, put in zip(self._queues, [*nexts, _ignore], strict=True)
        ]
        self.put = self._queues[0].put

    def end(self) -> None:
        """Put the end behind everything and wait until it is through."""
        self.put(END)
        for thread in self._threads:
            thread.join()


class QueueDiamond:
    """Source, left and right, a join, and a collecting end, each a thread."""

    def __init__(self) -> None:
        source, left, right, from_left, from_right, last = (Queue() for _ in range(6))
        self._threads = [
            _start(pass_on, source, left.put, right.put),
            _start(pass_on, left, from_left.put),
            _start(pass_on, right, from_right.put),
            _start(join, (from_left, from_right), last.put),
            _start(pass_on, last, _collect),
        ]
        self.put = source.put

    def end(self) -> None:
        """Put the end behind everything and wait until it is through."""
        self.put(END)
        for thread in self._threads:
            thread.join()


def pass_on(queue: Queue, *puts: Callable[[object], None]) -> None:
    """Take and put until the end."""
    item = None
    while item is not END:
        item = queue.get()
        for put in puts:
            put(item)


def join(queues: tuple[Queue, ...], put: Callable[[object], None]) -> None:
    """Put what comes from all queues, and each token once, when all queues have brought it."""
    token: object = None
    while token is not END:
        for queue in queues:
            token = _put_up_to_token(queue, put)
        put(token)


def _put_up_to_token(queue: Queue, put: Callable[[object], None]) -> object:
    while not isinstance(item := queue.get(), Token) and item is not END:
        put(item)
    return item


def _collect(item: object) -> None:
    if isinstance(item, Token):
        item.set()


def _ignore(item: object) -> None:
    pass


def _start(target: Callable[..., None], *args: object) -> Thread:
    thread = Thread(target=target, args=args)
    thread.start()
    return thread
