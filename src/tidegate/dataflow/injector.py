"""Where a source's read loop learns that a checkpoint barrier is due.

A `BarrierInjector` belongs to one read loop and is polled on each of its turns, also when there
was nothing to read. A coordinator, in any thread, tells it through an `InjectorHandle` which
barrier to inject. Ids are given by the head of the run and nowhere else: with a period the
injector only *asks* for a barrier when one is due, and the answer comes through the handle.

The handle publishes by one store of one reference to a fresh immutable value, so what is read is
always consistent and the latest wins. The loop takes it by remembering which one it has seen:
nothing is cleared, so there is no moment at which a store could be lost.
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
"""Seconds between the barriers that a periodic injector asks for."""

DEFAULT_LOOK_EVERY = 32
"""How many empty turns pass between two looks at the clock, which costs more than the turns."""

GIVE_WAY_EVERY: Final = 1 << 20
"""A compiled loop never releases the interpreter's lock by itself: it sleeps every so many calls,
about every 3 ms."""

GIVE_WAY_SECONDS: Final = 50e-6
"""Longer than another thread takes to wake up and take the lock. A release for no time starves it:
the lock is taken again before it wakes, and each release restarts the 5 ms after which Python
would force a switch."""

log = logging.getLogger(__name__)


@final
class _Mailbox:
    """The one place that both threads know."""

    __slots__ = ("bell", "published")

    def __init__(self, bell: Bell | None) -> None:
        self.published: CheckpointBarrier | None = None
        self.bell: Final = Bell() if bell is None else bell


@final
class InjectorHandle:
    """The coordinator's end: tells one source which barrier to inject; from any thread."""

    __slots__ = ("_mailbox", "_until_way")

    def __init__(self, mailbox: _Mailbox) -> None:
        self._mailbox: Final = mailbox
        self._until_way: i64 = GIVE_WAY_EVERY

    def inject(
        self, checkpoint_id: int, epoch: int, unaligned: bool = False, unpublished: bool = False
    ) -> None:
        """Publish a barrier; one that was not yet taken is replaced by it."""
        flags = (UNALIGNED if unaligned else 0) | (UNPUBLISHED if unpublished else 0)
        self._mailbox.published = CheckpointBarrier(checkpoint_id, epoch, flags)
        self._mailbox.bell.ring()
        self._until_way -= 1
        if self._until_way <= 0:
            self._until_way = GIVE_WAY_EVERY
            _give_way()

    def obey(self, command: InjectBarrier) -> None:
        """Publish what a command says that came from elsewhere."""
        self.inject(
            command.checkpoint_id, command.epoch, command.is_unaligned, command.is_unpublished
        )


@final
class BarrierInjector:
    """The read loop's end: says on each turn whether a barrier follows what was read last.

    With `ask` it is periodic: it calls `ask()` when `interval` seconds have passed since the last
    barrier or the last question. That must return at once; the answer comes through the handle.
    The clock is looked at every `look_every` empty turns, so a question is late by that many.
    `bell` is rung when a barrier is published, for a loop that sleeps on it.
    """

    __slots__ = (
        "_ask",
        "_asked_at",
        "_clock",
        "_epoch",
        "_interval",
        "_last_id",
        "_mailbox",
        "_restart",
        "_seen",
        "_stride",
        "_until_look",
        "_until_way",
        "barriers_injected",
        "duplicates",
        "epoch_mismatches",
        "questions",
        "regressions",
        "source",
    )

    def __init__(
        self,
        source: str,
        ask: Callable[[], None] | None = None,
        interval: float = DEFAULT_INTERVAL,
        clock: Callable[[], float] = monotonic,
        look_every: int = DEFAULT_LOOK_EVERY,
        bell: Bell | None = None,
    ) -> None:
        if interval <= 0 or look_every < 1:
            raise ValueError(f"source {source!r} needs an interval above 0 and looks at the clock")
        self.source = source
        self.barriers_injected: i64 = 0
        self.duplicates: i64 = 0
        self.regressions: i64 = 0
        self.epoch_mismatches: i64 = 0
        self.questions: i64 = 0
        self._mailbox: Final = _Mailbox(bell)
        self._seen: CheckpointBarrier | None = None
        self._last_id = 0
        self._epoch: i64 = 0
        self._ask: Final = ask
        self._interval: Final = interval
        self._clock: Final = clock
        self._asked_at = clock()
        self._restart = False
        self._stride: i64 = GIVE_WAY_EVERY if ask is None else min(look_every, GIVE_WAY_EVERY)
        self._until_look: i64 = self._stride
        self._until_way: i64 = GIVE_WAY_EVERY

    def handle(self) -> InjectorHandle:
        """An end for a coordinator; any number of them may be in use."""
        return InjectorHandle(self._mailbox)

    @property
    def has_pending(self) -> bool:
        """Whether something was published that no poll has seen."""
        return self._mailbox.published is not self._seen

    def poll_barrier(self) -> CheckpointBarrier | None:
        """The barrier that goes out now, between what was read and what is read next."""
        if self._mailbox.published is not self._seen:
            return self._take()
        self._until_look -= 1
        if self._until_look <= 0:
            self._look_up()
        return None

    def _take(self) -> CheckpointBarrier | None:
        taken = self._mailbox.published
        assert taken is not None, "only barriers are published, and one was"
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
            log.warning("source %r was told to inject %s again; ignored", self.source, barrier)
        else:
            self.regressions += 1
            log.warning(
                "source %r was told to inject %s after checkpoint %s; ignored, ids only grow",
                self.source,
                barrier,
                self._last_id,
            )

    def _note_epoch(self, barrier: CheckpointBarrier) -> None:
        """The coordinator decides about epochs; that one was left out here may be worth knowing."""
        self.epoch_mismatches += 1
        log.warning(
            "source %r was told to inject %s after epoch %s; accepted",
            self.source,
            barrier,
            self._epoch,
        )

    def _look_up(self) -> None:
        """What is too dear to be done on each turn."""
        self._until_look = self._stride
        self._until_way -= self._stride
        if self._until_way <= 0:
            self._until_way = GIVE_WAY_EVERY
            _give_way()
        if self._ask is not None:
            self._ask_when_due(self._ask)

    def _ask_when_due(self, ask: Callable[[], None]) -> None:
        now = self._clock()
        if self._restart:
            self._restart = False
            self._asked_at = now
        elif now - self._asked_at >= self._interval:
            self._asked_at = now
            self.questions += 1
            ask()


def _give_way() -> None:
    """Let other threads run."""
    sleep(GIVE_WAY_SECONDS)
