"""The bounded in-memory channel between two processors.

One thread puts, one thread takes; the head may put signals from a third. Events wait for space.
Signals have slots of their own beyond the capacity, so a barrier is accepted while events wait,
and keeps its position in the order.

An accepted message is delivered: after `close` the consumer drains the channel, and a put that
loses the race against the departing consumer raises.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock
from time import monotonic
from typing import Final, final

from mypy_extensions import i64

from tidegate.dataflow.bell import Bell
from tidegate.dataflow.messages import StreamMessage
from tidegate.errors import ChannelClosed, ChannelTimeout

DEFAULT_CAPACITY = 1024
DEFAULT_RESERVE = 64


@final
class Channel:
    """A single-producer, single-consumer queue of messages with backpressure.

    `arrivals` is rung when a message can be taken, `space` when one can be put. With the bells of
    the threads at either end, each can sleep on many channels at once.
    """

    def __init__(
        self,
        name: str,
        capacity: int = DEFAULT_CAPACITY,
        reserve: int = DEFAULT_RESERVE,
        arrivals: Bell | None = None,
        space: Bell | None = None,
    ) -> None:
        if capacity < 1 or reserve < 1:
            raise ValueError(f"channel {name!r} needs a capacity and a reserve of at least 1")
        self.name = name
        self.capacity: i64 = capacity
        self.peak_depth: i64 = 0
        self._limit: i64 = capacity + reserve
        self._queue: Final[deque[StreamMessage]] = deque()
        # Looking a method up costs as much as calling it.
        self._append: Final[Callable[[StreamMessage], None]] = self._queue.append
        self._popleft: Final[Callable[[], StreamMessage]] = self._queue.popleft
        self._arrivals: Final = Bell() if arrivals is None else arrivals
        self._space: Final = Bell() if space is None else space
        self._closing = Lock()
        self._closed = False
        self._departed = False

    @property
    def depth(self) -> int:
        """How many messages are queued."""
        return len(self._queue)

    @property
    def is_closed(self) -> bool:
        """Whether puts are refused; accepted messages can still be taken."""
        return self._closed

    @property
    def is_drained(self) -> bool:
        """Whether it is closed and empty; nothing can arrive after this was true."""
        if not self._closed or self._queue:
            return False
        with self._closing:
            self._departed = self._departed or not self._queue
            return self._departed

    def has_space_for(self, message: StreamMessage) -> bool:
        """Whether `offer` would accept it."""
        return len(self._queue) < (self._limit if message.is_signal else self.capacity)

    def offer(self, message: StreamMessage) -> bool:
        """Put without waiting; False when the channel is full."""
        if self._closed:
            raise ChannelClosed(channel=self.name, element=str(message))
        depth: i64 = len(self._queue)
        if depth >= self.capacity and (depth >= self._limit or not message.is_signal):
            return False
        self._append(message)
        if self._closed:
            self._take_back_if_departed(message)  # type: ignore[unreachable]  # other threads close
        if depth >= self.peak_depth:
            self.peak_depth = depth + 1
        self._arrivals.ring()
        return True

    def put(self, message: StreamMessage, timeout: float | None = None) -> None:
        """Put, waiting for space at most `timeout` seconds."""
        deadline = None if timeout is None else monotonic() + timeout
        while not self.offer(message):
            remaining = None if deadline is None else deadline - monotonic()
            if remaining is not None and remaining <= 0:
                raise ChannelTimeout(channel=self.name, doing="space", seconds=timeout or 0.0)
            self._space.sleep_unless(lambda: self._closed or self.has_space_for(message), remaining)

    def poll(self) -> StreamMessage | None:
        """Take without waiting; None when the channel is empty."""
        if not self._queue:
            return None
        message = self._popleft()
        self._space.ring()
        return message

    def take(self, timeout: float | None = None) -> StreamMessage:
        """Take, waiting for a message at most `timeout` seconds."""
        deadline = None if timeout is None else monotonic() + timeout
        while (message := self.poll()) is None:
            if self.is_drained:
                raise ChannelClosed(channel=self.name, element="nothing more to take")
            remaining = None if deadline is None else deadline - monotonic()
            if remaining is not None and remaining <= 0:
                raise ChannelTimeout(channel=self.name, doing="a message", seconds=timeout or 0.0)
            self._arrivals.sleep_unless(lambda: self._closed or bool(self._queue), remaining)
        return message

    def close(self) -> None:
        """Refuse further puts and wake both ends; idempotent."""
        self._closed = True
        self._arrivals.ring()
        self._space.ring()

    def _take_back_if_departed(self, message: StreamMessage) -> None:
        """Closed between the check and the put: the consumer may have departed."""
        with self._closing:
            if self._departed:
                self._queue.clear()
                raise ChannelClosed(channel=self.name, element=str(message))
