"""What a member is sent: how far it has come, and the handlers that work on it.

Handlers run one at a time, in the order of the messages. One that waits in a barrier lets the next
ones run meanwhile and does not count as unfinished: else a processing fence inside a handler would
wait for itself, and two of them for each other.

    Who wakes whom: a message wakes a runner and those who wait for a position; a runner that takes
    one wakes the reader that waits for room. Every change is told through `on_change`, by which
    acknowledgements are sent. No wait here is for a barrier.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Condition, Lock, Thread, current_thread, local

from tidegate.group.events import log

MOST_WAITING = 10_000
"""Messages that wait for their handlers before the connection is read no further."""
MOST_BYTES = 64 << 20
"""The same for the bytes of their payloads."""
MOST_RUNNERS = 64
"""Handlers that may wait in barriers at the same time."""

_current = local()
"""In the thread of a handler, `work`: the intake and the place of its message."""


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


class Intake:
    """The messages of one life of a member; `after` is the intake of the life before."""

    def __init__(
        self,
        handle: Callable[[Message], None],
        on_change: Callable[[], None],
        after: Intake | None = None,
    ) -> None:
        self._handle = handle
        self._on_change = on_change
        self._after = after
        self._lock = Lock()
        self._work = Condition(self._lock)
        self._room = Condition(self._lock)
        self._moved = Condition(self._lock)
        self._waiting: deque[Message] = deque()
        self._bytes = 0
        self._running: dict[int, bool] = {}
        """By place, the messages that a handler has, and whether it waits in a barrier."""
        self._runners: set[Thread] = set()
        self._taken = 0
        self._is_closed = False
        self.received = 0
        """The place of the last message that has arrived."""
        with self._lock:
            self._add_runner()

    def put(self, message: Message) -> None:
        """A message has arrived; waits while too many wait for their handlers."""
        with self._lock:
            while self._is_full() and not self._is_closed:
                self._room.wait()
            self._waiting.append(message)
            self._bytes += len(message.payload)
            self.received = message.sequence
            self._work.notify()
            self._moved.notify_all()
        self._on_change()

    def is_quiet(self, target: int) -> bool:
        """Whether every handler is through with what stands up to there, or waits in a barrier."""
        with self._lock:
            return self._cutoff() >= target

    @property
    def processed(self) -> int:
        """The place up to which handlers are through."""
        with self._lock:
            return self._cutoff()

    def wait_received(self, target: int, timeout: float) -> bool:
        """Whether everything up to there arrives, in time and before this is closed."""
        with self._lock:
            self._moved.wait_for(lambda: self.received >= target or self._is_closed, timeout)
            return self.received >= target

    def wait_quiet(self, target: int, timeout: float) -> bool:
        """Whether handlers are through up to there in time."""
        with self._lock:
            return self._moved.wait_for(lambda: self._cutoff() >= target, timeout)

    def close(self) -> None:
        """Take no more; what has arrived is still handled."""
        with self._lock:
            self._is_closed = True
            self._work.notify_all()
            self._room.notify_all()
            self._moved.notify_all()

    def join(self) -> None:
        """Wait until its handlers are through, or wait in barriers."""
        with self._lock:
            self._moved.wait_for(lambda: len(self._runners) <= sum(self._running.values()))

    def step_aside(self, place: int) -> None:
        """The handler of that message waits in a barrier: the next ones go on."""
        with self._lock:
            self._running[place] = True
            if len(self._runners) < MOST_RUNNERS:
                self._add_runner()
            self._moved.notify_all()
        self._on_change()

    def step_back(self, place: int) -> None:
        """It goes on."""
        with self._lock:
            self._running[place] = False

    def _is_full(self) -> bool:
        return len(self._waiting) >= MOST_WAITING or self._bytes >= MOST_BYTES

    def _cutoff(self) -> int:
        at_work = [place for place, is_aside in self._running.items() if not is_aside]
        return min(at_work) - 1 if at_work else self._taken

    def _add_runner(self) -> None:
        runner = Thread(target=self._run, name="group handlers", daemon=True)
        self._runners.add(runner)
        runner.start()

    def _run(self) -> None:
        if self._after is not None:
            self._after.join()  # a handler of the life before may still be at work
            self._after = None
        while (message := self._take()) is not None:
            _current.work = self, message.sequence
            try:
                self._handle(message)
            except Exception:  # noqa: BLE001  a handler's trouble is its own
                log.exception("the handler of %r has failed", message.topic)
            self._is_through(message)
            self._on_change()

    def _take(self) -> Message | None:
        """The next message; nothing when closed, or when another runner is there for it."""
        with self._lock:
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
            self._taken = message.sequence
            self._running[message.sequence] = False
            self._room.notify()
            return message

    def _is_surplus(self) -> bool:
        aside = sum(self._running.values())
        return len(self._runners) - aside > 1

    def _retire(self) -> None:
        self._runners.discard(current_thread())
        self._work.notify()
        self._moved.notify_all()

    def _is_through(self, message: Message) -> None:
        with self._lock:
            del self._running[message.sequence]
            self._moved.notify_all()


@contextmanager
def aside() -> Iterator[None]:
    """The calling thread waits in a barrier; if it runs a handler, of whatever life, that waits."""
    work: tuple[Intake, int] | None = getattr(_current, "work", None)
    if work is None:
        yield
        return
    intake, place = work
    intake.step_aside(place)
    try:
        yield
    finally:
        intake.step_back(place)
