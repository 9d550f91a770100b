"""Passes checkpoint barriers to the read loop of a source.

A `BarrierInjector` belongs to one read loop, which polls it on each turn, also when there was
nothing to read. A coordinator, on any thread, publishes the barrier to inject through an
`InjectorHandle`. Only the head of the run assigns ids: a periodic injector *requests* a barrier
when one is due, and gets it through the handle.

The handle publishes by one store of one reference to a fresh immutable value, so a read is always
consistent and the latest wins. The loop remembers the last one that it has seen and clears nothing,
so no store can be lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic, sleep
from typing import Final, final

from mypy_extensions import i64

from tidegate.dataflow.bell import Bell
from tidegate.dataflow.checkpoint_barrier import (
    UNALIGNED,
    UNPUBLISHED,
    CheckpointBarrier,
    InjectBarrier,
)

DEFAULT_INTERVAL = 10.0
"""Seconds between the barriers that a periodic injector requests."""

DEFAULT_LOOK_EVERY = 32
"""Empty turns between two readings of the clock, which costs more than the turns."""

GIVE_WAY_EVERY: Final = 1 << 20
"""A compiled loop never releases the interpreter lock by itself: it sleeps every so many calls,
about every 3 ms."""

GIVE_WAY_SECONDS: Final = 50e-6
"""Longer than another thread takes to wake up and acquire the lock. A shorter release starves it:
the lock is acquired again before it wakes, and each release restarts the 5 ms after which Python
forces a switch."""

log = logging.getLogger(__name__)


@final
class _Mailbox:
    """Shared by the injector and its handles."""

    __slots__ = ("bell", "published")

    def __init__(self, bell: Bell | None) -> None:
        self.published: CheckpointBarrier | None = None
        self.bell: Final = Bell() if bell is None else bell


@final
class InjectorHandle:
    """The coordinator's end: publishes the barrier that one source injects; thread-safe."""

    __slots__ = ("_mailbox", "_until_way")

    def __init__(self, mailbox: _Mailbox) -> None:
        self._mailbox: Final = mailbox
        self._until_way: i64 = GIVE_WAY_EVERY

    def inject(
        self, checkpoint_id: int, epoch: int, unaligned: bool = False, unpublished: bool = False
    ) -> None:
        """Publish a barrier; it replaces one that was not taken yet."""
        flags = (UNALIGNED if unaligned else 0) | (UNPUBLISHED if unpublished else 0)
        self._mailbox.published = CheckpointBarrier(checkpoint_id, epoch, flags)
        self._mailbox.bell.ring()
        self._until_way -= 1
        if self._until_way <= 0:
            self._until_way = GIVE_WAY_EVERY
            _give_way()

    def obey(self, command: InjectBarrier) -> None:
        """Publish the barrier of a command from another process."""
        self.inject(
            command.checkpoint_id, command.epoch, command.is_unaligned, command.is_unpublished
        )


@final
class BarrierInjector:
    """The read loop's end: returns on each turn the barrier that follows what was read last.

    With `request` it is periodic: it calls `request()` when `interval` seconds have passed since
    the last barrier or request. The call must return at once; the barrier comes through the handle.
    The clock is read every `look_every` empty turns, so a request is late by up to that many.
    `bell` is rung when a barrier is published, for a loop that sleeps on it.
    """

    __slots__ = (
        "_clock",
        "_epoch",
        "_interval",
        "_last_id",
        "_mailbox",
        "_request",
        "_requested_at",
        "_restart",
        "_seen",
        "_stride",
        "_until_look",
        "_until_way",
        "barriers_injected",
        "duplicates",
        "epoch_mismatches",
        "regressions",
        "requests",
        "source",
    )

    def __init__(
        self,
        source: str,
        request: Callable[[], None] | None = None,
        interval: float = DEFAULT_INTERVAL,
        clock: Callable[[], float] = monotonic,
        look_every: int = DEFAULT_LOOK_EVERY,
        bell: Bell | None = None,
    ) -> None:
        if interval <= 0 or look_every < 1:
            raise ValueError(f"source {source!r} needs an interval and a `look_every` above 0")
        self.source = source
        self.barriers_injected: i64 = 0
        self.duplicates: i64 = 0
        self.regressions: i64 = 0
        self.epoch_mismatches: i64 = 0
        self.requests: i64 = 0
        self._mailbox: Final = _Mailbox(bell)
        self._seen: CheckpointBarrier | None = None
        self._last_id = 0
        self._epoch: i64 = 0
        self._request: Final = request
        self._interval: Final = interval
        self._clock: Final = clock
        self._requested_at = clock()
        self._restart = False
        self._stride: i64 = GIVE_WAY_EVERY if request is None else min(look_every, GIVE_WAY_EVERY)
        self._until_look: i64 = self._stride
        self._until_way: i64 = GIVE_WAY_EVERY

    def handle(self) -> InjectorHandle:
        """A handle for a coordinator; any number of them may be in use."""
        return InjectorHandle(self._mailbox)

    @property
    def has_pending(self) -> bool:
        """Whether a barrier was published that no poll has seen."""
        return self._mailbox.published is not self._seen

    def poll_barrier(self) -> CheckpointBarrier | None:
        """The barrier to emit between what was read and what is read next."""
        if self._mailbox.published is not self._seen:
            return self._take()
        self._until_look -= 1
        if self._until_look <= 0:
            self._look_up()
        return None

    def _take(self) -> CheckpointBarrier | None:
        taken = self._mailbox.published
        assert taken is not None, "only barriers are published"
        self._seen = taken
        if taken.checkpoint_id <= self._last_id:
            self._ignore(taken)
            return None
        if taken.epoch != self._epoch + 1 and self.barriers_injected > 0:
            self._note_epoch(taken)
        self._last_id = taken.checkpoint_id
        self._epoch = taken.epoch
        self._restart = True
        self.barriers_injected += 1
        return taken

    def _ignore(self, barrier: CheckpointBarrier) -> None:
        if barrier.checkpoint_id == self._last_id:
            self.duplicates += 1
            log.warning("source %r: ignored a repeated request to inject %s", self.source, barrier)
        else:
            self.regressions += 1
            log.warning(
                "source %r: ignored a request to inject %s after checkpoint %s; ids only increase",
                self.source,
                barrier,
                self._last_id,
            )

    def _note_epoch(self, barrier: CheckpointBarrier) -> None:
        """The coordinator decides about epochs; a skipped one is accepted, counted and logged."""
        self.epoch_mismatches += 1
        log.warning(
            "source %r: accepted a request to inject %s after epoch %s",
            self.source,
            barrier,
            self._epoch,
        )

    def _look_up(self) -> None:
        """What is too expensive to be done on each turn."""
        self._until_look = self._stride
        self._until_way -= self._stride
        if self._until_way <= 0:
            self._until_way = GIVE_WAY_EVERY
            _give_way()
        if self._request is not None:
            self._request_when_due(self._request)

    def _request_when_due(self, request: Callable[[], None]) -> None:
        now = self._clock()
        if self._restart:
            self._restart = False
            self._requested_at = now
        elif now - self._requested_at >= self._interval:
            self._requested_at = now
            self.requests += 1
            request()


def _give_way() -> None:
    """Release the interpreter lock, so that other threads run."""
    sleep(GIVE_WAY_SECONDS)
