"""A task's channels of arrival: what was fetched of each run, and how much of it goes into a step.

A step takes from every run that has something, up to a barrier and up to a share of bytes, so
that a large run cannot keep a small one waiting behind all of its data.

A step costs about the same whether it takes much or little. So while data keeps coming and nobody
waits for it, it is left to gather; a signal, such as END, is somebody who waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic

from tidegate.dataflow import Barrier, Edge, Event, StreamMessage
from tidegate.errors import ChannelConflict, CountMismatch
from tidegate.runtime.task.batch_sizing import ripe_at
from tidegate.store import FETCH, Run, Unread


@dataclass(slots=True)
class InputChannel:
    """A channel into the task, of one run."""

    id: int
    edge: Edge
    run: Run
    cursor: int
    handled: int
    fetched: int
    waiting: deque[Unread] = field(default_factory=deque)
    bytes: int = 0
    signals: int = 0
    since: float = 0.0
    latest: float = 0.0
    """How much is waiting, how many signals are in it, when the first and the last came."""
    is_ended: bool = False
    """Whether END was taken; nothing comes behind it."""

    def keep(self, message: Unread) -> None:
        """Add what was fetched; the next number on the channel, or the channel is broken."""
        if message.seq != self.fetched + 1:
            reason = f"message {self.fetched + 1} of {self.run.key} is gone"
            raise ChannelConflict(task=str(self.edge), reason=reason, run=self.run.key)
        self.fetched = message.seq
        self.latest = monotonic()
        self.since = self.since if self.waiting else self.latest
        self.waiting.append(message)
        self._count(message, 1)

    def ripe_at(self, share: int) -> float:
        """When what is waiting is worth a step of this size."""
        is_enough = bool(self.signals) or self.bytes >= share or len(self.waiting) >= FETCH
        return 0.0 if is_enough else ripe_at(self.since, self.latest)

    @property
    def is_at_end(self) -> bool:
        """Whether END is the next to be taken."""
        return bool(self.waiting) and _is_end(self.waiting[0].message)

    def take(self, messages: int, share: int, *, released: bool) -> Iterator[StreamMessage]:
        """Messages in order, up to a signal, up to a share of bytes, and END only if released.

        The first message is taken whatever its size.
        """
        while messages > 0 and share > 0 and self.waiting:
            if not released and self.is_at_end:
                return
            unread = self.waiting.popleft()
            self._count(unread, -1)
            self._check_count(unread)
            self.handled = unread.seq
            self.is_ended = _is_end(unread.message)
            yield unread.message
            share -= weight(unread.message)
            messages = 0 if unread.message.is_signal else messages - 1

    def _count(self, unread: Unread, sign: int) -> None:
        self.bytes += sign * weight(unread.message)
        self.signals += sign * unread.message.is_signal

    def _check_count(self, unread: Unread) -> None:
        end = unread.message
        if isinstance(end, Barrier) and end.is_end and end.count != unread.seq - 1:
            raise CountMismatch(str(self.edge), self.run.key, end.count or 0, unread.seq - 1)


def weight(message: StreamMessage) -> int:
    """The bytes of the data that a message stands for, as far as its payload tells."""
    payload = message.payload if isinstance(message, Event) else None
    size = payload.get("bytes", 0) if isinstance(payload, Mapping) else 0
    return size if isinstance(size, int) else 0


def _is_end(message: StreamMessage) -> bool:
    return isinstance(message, Barrier) and message.is_end
