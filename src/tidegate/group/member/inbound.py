"""The inbound messages of one session: positions received and processed."""

from __future__ import annotations

from collections.abc import Callable
from threading import TIMEOUT_MAX

from tidegate.group.member.handlers import Handlers, Message


class InboundMessages:
    """The messages of one session; they are processed after those of earlier sessions."""

    def __init__(self, handlers: Handlers, on_change: Callable[[], None]) -> None:
        self._handlers = handlers
        self._on_change = on_change
        self._is_closed = False
        self.received = 0
        """The position of the last message that has arrived."""
        with handlers.lock:
            handlers.sessions += 1
            handlers.on_change = on_change
            self._session = handlers.sessions
            self._before = handlers.arrived

    def put(self, message: Message) -> None:
        """Queue a message for its handler; waits while too many messages wait.

        After the session has ended this does not wait: a message without space is lost like
        everything in flight.
        """
        handlers = self._handlers
        with handlers.lock:
            while handlers.is_full and not self._is_closed:
                handlers.space_available.wait()
            if handlers.is_full or self._session != handlers.sessions:
                return
            self.received = message.sequence
            handlers.add(message)
        self._on_change()

    def is_processed(self, target: int) -> bool:
        """Whether every handler up to `target` has finished or is suspended in a barrier."""
        with self._handlers.lock:
            return self._is_processed(target)

    @property
    def processed(self) -> int:
        """The position up to which handlers have finished."""
        with self._handlers.lock:
            return max(0, self._handlers.processed_up_to - self._before)

    def warn(self, bound: float) -> None:
        """Log handlers that block others, or this session, for `bound` seconds."""
        self._handlers.warn(bound, self._before)

    def wait_received(self, target: int, timeout: float) -> bool:
        """Whether everything up to `target` arrives in time and before the session ends."""
        with self._handlers.lock:
            self._wait_for(lambda: self.received >= target or self._is_closed, timeout)
            return self.received >= target

    def wait_processed(self, target: int, timeout: float) -> bool:
        """Whether handlers finish up to `target` in time."""
        with self._handlers.lock:
            return self._wait_for(lambda: self._is_processed(target), timeout)

    def close(self) -> None:
        """The session has ended; messages that have arrived are still handled."""
        with self._handlers.lock:
            self._is_closed = True
            self._handlers.space_available.notify_all()
            self._handlers.progressed.notify_all()

    def _is_processed(self, target: int) -> bool:
        return self._handlers.processed_up_to >= self._before + target

    def _wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        return self._handlers.progressed.wait_for(condition, min(timeout, TIMEOUT_MAX))
