"""The handlers of a process: what waits for them, what they are at, and who holds the rest up.

Handlers run one at a time, in the order of the messages, through all lives of the process in its
group: what arrived in one life is handled before what arrives in the next. One that waits in a
barrier lets the next ones run meanwhile and does not count as unfinished: else a processing fence
inside a handler would wait for itself, and two of them for each other.

    Who wakes whom: a message wakes a runner and those who wait for a position; a runner that takes
    one wakes the reader that waits for room. Every change is told through `on_change`, by which
    acknowledgements are sent. No wait here is for a barrier.
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

from tidegate.group.log_events import log, tell

MOST_WAITING = 10_000
"""Messages that wait for their handlers before the connection is read no further."""
MOST_BYTES = 64 << 20
"""The same for the bytes of their payloads."""
MOST_RUNNERS = 64
"""Handlers that may wait in barriers at the same time."""

_current = local()
"""In the thread of a handler, `work`: the handlers it belongs to and the place of its message."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message as its handler gets it."""

    sender: str
    topic: str
    payload: bytes
    sequence: int
    """Its place in what this process is sent, from 1 without gaps."""
    sent: int
    """Its place in what the sender has sent."""


@dataclass(slots=True)
class _Work:
    """A handler that has a message."""

    message: Message
    since: float
    is_aside: bool = False
    """Whether it waits in a barrier."""
    warned_after: float = 0.0
    """Seconds after which was last said that it holds others up."""


class Handlers:
    """See the module. Places count the messages of all lives, from 1."""

    def __init__(self, handle: Callable[[Message], None]) -> None:
        self._handle = handle
        self.on_change: Callable[[], None] = _nothing
        self.lock = Lock()
        self.moved = Condition(self.lock)
        """Told when something has arrived or is through."""
        self.room = Condition(self.lock)
        self._work = Condition(self.lock)
        self._waiting: deque[Message] = deque()
        self._bytes = 0
        self._running: dict[int, _Work] = {}
        """By place."""
        self._runners: set[Thread] = set()
        self._taken = 0
        self._is_closed = False
        self.arrived = 0
        """The place of the last message that has arrived."""
        self.lives = 0

    # --- with the lock ---

    @property
    def is_full(self) -> bool:
        """Whether too many messages wait."""
        return len(self._waiting) >= MOST_WAITING or self._bytes >= MOST_BYTES

    @property
    def cutoff(self) -> int:
        """The place up to which every handler is through, or waits in a barrier."""
        at_work = [place for place, work in self._running.items() if not work.is_aside]
        return min(at_work) - 1 if at_work else self._taken

    def add(self, message: Message) -> None:
        """A message has arrived."""
        self._waiting.append(message)
        self._bytes += len(message.payload)
        self.arrived += 1
        if not self._runners:
            self._add_runner()
        self._work.notify()
        self.moved.notify_all()

    # --- without it ---

    def close(self) -> None:
        """There will be no more; what has arrived is still handled."""
        with self.lock:
            self._is_closed = True
            self._work.notify_all()

    def warn(self, bound: float, before: int) -> None:
        """Say who has held others up for `bound` seconds, and again whenever that has doubled.

        Others are messages that wait behind it, or a whole life: that which began after `before`.
        """
        with self.lock:
            slow = [it for place, it in self._running.items() if self._holds_up(place, it, before)]
            late = [it for it in slow if _is_worth_a_word(it, bound)]
            waiting = len(self._waiting)
        for it in late:
            tell("handlers.held", logging.WARNING, waiting=waiting, **_named(it))

    def step_aside(self, place: int) -> None:
        """The handler of that message waits in a barrier: the next ones go on."""
        with self.lock:
            self._running[place].is_aside = True
            if len(self._runners) < MOST_RUNNERS:
                self._add_runner()
            self.moved.notify_all()
        self.on_change()

    def step_back(self, place: int) -> None:
        """It goes on."""
        with self.lock:
            self._running[place].is_aside = False

    def _holds_up(self, place: int, work: _Work, before: int) -> bool:
        return not work.is_aside and (bool(self._waiting) or place <= before)

    def _add_runner(self) -> None:
        runner = Thread(target=self._run, name="group handlers", daemon=True)
        runner.start()  # it waits for the lock, and is none if it cannot be started
        self._runners.add(runner)

    def _run(self) -> None:
        while (taken := self._take()) is not None:
            place, message = taken
            _current.work = self, place
            try:
                self._handle(message)
            except BaseException:  # noqa: BLE001  a handler's trouble is its own, its exit too
                log.exception("the handler of %r has failed", message.topic)
            self._is_through(place)
            self.on_change()

    def _take(self) -> tuple[int, Message] | None:
        """The next message; nothing when closed, or when another runner is there for it."""
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
            self._running[self._taken] = _Work(message, monotonic())
            self.room.notify()
            return self._taken, message

    def _is_surplus(self) -> bool:
        aside = sum(work.is_aside for work in self._running.values())
        return len(self._runners) - aside > 1

    def _retire(self) -> None:
        self._runners.discard(current_thread())
        self._work.notify()

    def _is_through(self, place: int) -> None:
        with self.lock:
            work = self._running.pop(place)
            self.moved.notify_all()
        if work.warned_after:
            tell("handlers.freed", **_named(work))


@contextmanager
def aside() -> Iterator[None]:
    """The calling thread waits in a barrier; if it runs a handler, of whatever life, that waits."""
    work: tuple[Handlers, int] | None = getattr(_current, "work", None)
    if work is None:
        yield
        return
    handlers, place = work
    handlers.step_aside(place)
    try:
        yield
    finally:
        handlers.step_back(place)


def _is_worth_a_word(work: _Work, bound: float) -> bool:
    seconds = monotonic() - work.since
    if seconds < max(bound, 2 * work.warned_after):
        return False
    work.warned_after = seconds
    return True


def _named(work: _Work) -> dict[str, object]:
    seconds = monotonic() - work.since
    since = datetime.now(UTC) - timedelta(seconds=seconds)
    it = work.message
    return {"topic": it.topic, "sender": it.sender, "sequence": it.sequence,
            "since": since.isoformat(timespec="seconds"), "seconds": round(seconds, 1)}  # fmt: skip


def _nothing() -> None:
    """Nobody wants to know yet."""
