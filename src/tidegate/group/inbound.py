"""What a member is sent in one of its lives: how far it has come, and its handlers with it."""

from __future__ import annotations

from collections.abc import Callable
from threading import TIMEOUT_MAX

from tidegate.group.handlers import Handlers, Message


class InboundMessages:
    """The messages of one life; its handlers are through only when those of earlier lives are."""

    def __init__(self, handlers: Handlers, on_change: Callable[[], None]) -> None:
        self._handlers = handlers
        self._on_change = on_change
        self._is_closed = False
        self.received = 0
        """The place of the last message that has arrived."""
        with handlers.lock:
            handlers.lives += 1
            handlers.on_change = on_change
            self._life = handlers.lives
            self._before = handlers.arrived

    def put(self, message: Message) -> None:
        """A message has arrived; waits while too many wait for their handlers.

        When the life is over nothing waits any more: what finds no room is lost like all that was
        on its way.
        """
        handlers = self._handlers
        with handlers.lock:
            while handlers.is_full and not self._is_closed:
                handlers.room.wait()
            if handlers.is_full or self._life != handlers.lives:
                return
            self.received = message.sequence
            handlers.add(message)
        self._on_change()

    def is_quiet(self, target: int) -> bool:
        """Whether every handler is through with what stands up to there, or waits in a barrier."""
        with self._handlers.lock:
            return self._is_quiet(target)

    @property
    def processed(self) -> int:
        """The place up to which handlers are through."""
        with self._handlers.lock:
            return max(0, self._handlers.cutoff - self._before)

    def warn(self, bound: float) -> None:
        """Say which handlers have held up others, or this whole life, for so many seconds."""
        self._handlers.warn(bound, self._before)

    def wait_received(self, target: int, timeout: float) -> bool:
        """Whether everything up to there arrives, in time and before this is closed."""
        with self._handlers.lock:
            self._wait_for(lambda: self.received >= target or self._is_closed, timeout)
            return self.received >= target

    def wait_quiet(self, target: int, timeout: float) -> bool:
        """Whether handlers are through up to there in time."""
        with self._handlers.lock:
            return self._wait_for(lambda: self._is_quiet(target), timeout)

    def close(self) -> None:
        """The life is over; what has arrived is still handled."""
        with self._handlers.lock:
            self._is_closed = True
            self._handlers.room.notify_all()
            self._handlers.moved.notify_all()

    def _is_quiet(self, target: int) -> bool:
        return self._handlers.cutoff >= self._before + target

    def _wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        return self._handlers.moved.wait_for(condition, min(timeout, TIMEOUT_MAX))
