"""Runs the message handlers of a process.

Handlers run one at a time, in message order, across all sessions of the process: messages of one
session are handled before those of the next. A handler that waits in a barrier is suspended: the
next ones run meanwhile, and it does not count as unfinished. Otherwise a processing fence inside a
handler would wait for itself, and two of them for each other.

A new message wakes a runner and the threads that wait for a position; a runner that takes a message
wakes the reader that waits for space. `on_change` is called after every change and sends the
acknowledgements that are due. Nothing here waits for a barrier.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Condition, Lock, Thread, current_thread, local
from time import monotonic

from tidegate.group.log_events import log, log_event

MAX_WAITING = 10_000
"""Waiting messages at which reading from the connection stops."""
MAX_BYTES = 64 << 20
"""Payload bytes of waiting messages at which reading stops."""
MAX_RUNNERS = 64
"""Handler threads, most of them suspended in barriers."""

_current = local()
"""In a handler thread, `running`: its `Handlers` and the position of its message."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it is passed to its handler."""

    sender: str
    topic: str
    payload: bytes
    sequence: int
    """Its position among the messages to this process, from 1 without gaps."""
    sent: int
    """Its position among the sender's messages."""


@dataclass(slots=True)
class _RunningHandler:
    """A handler that is processing a message."""

    message: Message
    since: float
    is_suspended: bool = False
    """Whether it waits in a barrier."""
    warned_after: float = 0.0
    """Its age in seconds at the last warning."""


class Handlers:
    """See the module. Positions count the messages of all sessions, from 1."""

    def __init__(self, handle: Callable[[Message], None]) -> None:
        self._handle = handle
        self.on_change: Callable[[], None] = _ignore
        self.lock = Lock()
        self.progressed = Condition(self.lock)
        """Notified when a message has arrived or a handler has finished."""
        self.space_available = Condition(self.lock)
        self._work = Condition(self.lock)
        self._waiting: deque[Message] = deque()
        self._bytes = 0
        self._running: dict[int, _RunningHandler] = {}
        """By position."""
        self._runners: set[Thread] = set()
        self._taken = 0
        self._is_closed = False
        self.arrived = 0
        """The position of the last message that has arrived."""
        self.sessions = 0

    # --- called with the lock held ---

    @property
    def is_full(self) -> bool:
        """Whether too many messages wait."""
        return len(self._waiting) >= MAX_WAITING or self._bytes >= MAX_BYTES

    @property
    def processed_up_to(self) -> int:
        """The position up to which every handler has finished or is suspended in a barrier."""
        active = [each for each, running in self._running.items() if not running.is_suspended]
        return min(active) - 1 if active else self._taken

    def add(self, message: Message) -> None:
        """Queue a message that has arrived."""
        self._waiting.append(message)
        self._bytes += len(message.payload)
        self.arrived += 1
        if not self._runners:
            self._add_runner()
        self._work.notify()
        self.progressed.notify_all()

    # --- called without the lock ---

    def close(self) -> None:
        """Accept no more messages; those that have arrived are still handled."""
        with self.lock:
            self._is_closed = True
            self._work.notify_all()

    def warn(self, bound: float, before: int) -> None:
        """Log handlers that block others for `bound` seconds, and again whenever that doubles.

        A handler blocks the messages behind it, and the session that began after `before`.
        """
        with self.lock:
            overdue = [
                handler
                for position, handler in self._running.items()
                if self._is_blocking(position, handler, before) and _is_warning_due(handler, bound)
            ]
            waiting = len(self._waiting)
        for handler in overdue:
            log_event("handlers.blocked", logging.WARNING, waiting=waiting, **_facts(handler))

    def suspend(self, position: int) -> None:
        """The handler at this position waits in a barrier: the next ones may run."""
        with self.lock:
            self._running[position].is_suspended = True
            if len(self._runners) < MAX_RUNNERS:
                self._add_runner()
            self.progressed.notify_all()
        self.on_change()

    def resume(self, position: int) -> None:
        """The handler at this position continues."""
        with self.lock:
            self._running[position].is_suspended = False

    def _is_blocking(self, position: int, running: _RunningHandler, before: int) -> bool:
        return not running.is_suspended and (bool(self._waiting) or position <= before)

    def _add_runner(self) -> None:
        runner = Thread(target=self._run, name="group handlers", daemon=True)
        runner.start()  # it waits for the lock; if the start fails it is not registered
        self._runners.add(runner)

    def _run(self) -> None:
        while (next_message := self._take()) is not None:
            position, message = next_message
            _current.running = self, position
            try:
                self._handle(message)
            except BaseException:  # noqa: BLE001  a failing handler, `sys.exit` included, must not end the runner
                log.exception("handler of %r failed", message.topic)
            self._finish(position)
            self.on_change()

    def _take(self) -> tuple[int, Message] | None:
        """The next message; none when closed, or when another runner can take it."""
        with self.lock:
            while not self._waiting:
                if self._is_closed or self._is_surplus():
                    self._retire()
                    return None
                self._work.wait()
            if self._is_surplus():
                self._retire()
                return None
            message = self._waiting.popleft()
            self._bytes -= len(message.payload)
            self._taken += 1
            self._running[self._taken] = _RunningHandler(message, monotonic())
            self.space_available.notify()
            return self._taken, message

    def _is_surplus(self) -> bool:
        suspended = sum(running.is_suspended for running in self._running.values())
        return len(self._runners) - suspended > 1

    def _retire(self) -> None:
        self._runners.discard(current_thread())
        self._work.notify()

    def _finish(self, position: int) -> None:
        with self.lock:
            running = self._running.pop(position)
            self.progressed.notify_all()
        if running.warned_after:
            log_event("handlers.unblocked", **_facts(running))


@contextmanager
def suspended() -> Iterator[None]:
    """Suspend the handler that runs on the calling thread, if any, while it waits in a barrier."""
    running: tuple[Handlers, int] | None = getattr(_current, "running", None)
    if running is None:
        yield
        return
    handlers, position = running
    handlers.suspend(position)
    try:
        yield
    finally:
        handlers.resume(position)


def _is_warning_due(running: _RunningHandler, bound: float) -> bool:
    seconds = monotonic() - running.since
    if seconds < max(bound, 2 * running.warned_after):
        return False
    running.warned_after = seconds
    return True


def _facts(running: _RunningHandler) -> dict[str, object]:
    seconds = monotonic() - running.since
    since = datetime.now(UTC) - timedelta(seconds=seconds)
    message = running.message
    return {"topic": message.topic, "sender": message.sender, "sequence": message.sequence,
            "since": since.isoformat(timespec="seconds"), "seconds": round(seconds, 1)}  # fmt: skip


def _ignore() -> None:
    """The callback before the first session."""
