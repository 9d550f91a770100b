"""Puts a source's events and barriers on its channels: barriers between batches, never inside one.

For read loops whose channels are `Channel`s. Durable channels poll the same `BarrierInjector` and
append by their own means.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final, final

from tidegate.dataflow.bell import Bell
from tidegate.dataflow.channel import Channel
from tidegate.dataflow.checkpoint_barrier import CheckpointBarrier
from tidegate.dataflow.control import Barrier
from tidegate.dataflow.injector import BarrierInjector
from tidegate.dataflow.messages import Event
from tidegate.errors import BarrierInjectionFailed, ChannelClosed, ChannelError, ChannelTimeout

DEFAULT_PATIENCE = 30.0
"""Seconds that a barrier waits for a slot before its source counts as failed."""

LONGEST_NAP = 0.05
"""Seconds after which a waiting event checks for a barrier even without a ring."""


@final
class BarrierEmitter:
    """Puts the events of one source and run on all of its channels, and the barriers between them.

    A barrier takes a slot that channels reserve for signals, so it overtakes an event that waits
    for space. When those are full too, it waits at most `patience` seconds. If it cannot be put,
    the source has `failed`, `on_failure` is called with the error, and it is raised.

    With the same `bell` for the channels and the injector, waiting ends when something changes.
    """

    def __init__(
        self,
        run: str,
        channels: Sequence[Channel],
        injector: BarrierInjector,
        on_failure: Callable[[BarrierInjectionFailed], None],
        patience: float = DEFAULT_PATIENCE,
        bell: Bell | None = None,
    ) -> None:
        self.run = run
        self.failed: BarrierInjectionFailed | None = None
        self._channels: Final = tuple(channels)
        self._injector: Final = injector
        self._on_failure: Final = on_failure
        self._patience: Final = patience
        self._bell: Final = Bell() if bell is None else bell

    def turn(self) -> Barrier | None:
        """Emit the barrier that is due, if any: one turn of the read loop without an event."""
        due = self._injector.poll_barrier()
        return None if due is None else self.emit(due)

    def send(self, event: Event[object], timeout: float) -> None:
        """Put an event on every channel, then the barrier that is due; wait at most `timeout`.

        While it waits, barriers overtake it on every channel: the event follows them.
        """
        deadline = monotonic() + timeout
        while not self._has_space_for(event):
            self._nap(event, deadline, timeout)
            self.turn()
        for channel in self._channels:
            channel.put(event, max(0.0, deadline - monotonic()))
        self.turn()

    def emit(self, checkpoint: CheckpointBarrier) -> Barrier:
        """Put a checkpoint's barrier on every channel, in order."""
        if self.failed is not None:
            raise self.failed
        barrier = Barrier.of_checkpoint(checkpoint, self.run)
        for channel in self._channels:
            try:
                channel.put(barrier, self._patience)
            except (ChannelClosed, ChannelTimeout) as cause:
                raise self._fail(barrier, cause) from cause
        return barrier

    def _has_space_for(self, event: Event[object]) -> bool:
        """Whether all channels have: a barrier must not separate two copies of one event."""
        return all(channel.is_closed or channel.has_space_for(event) for channel in self._channels)

    def _nap(self, event: Event[object], deadline: float, timeout: float) -> None:
        remaining = deadline - monotonic()
        if remaining <= 0:
            channel = f"out of {self._injector.source}"
            raise ChannelTimeout(channel=channel, doing="space", seconds=timeout)
        self._bell.sleep_unless(
            lambda: self._injector.has_pending or self._has_space_for(event),
            min(remaining, LONGEST_NAP),
        )

    def _fail(self, barrier: Barrier, cause: ChannelError) -> BarrierInjectionFailed:
        failure = BarrierInjectionFailed(
            source=self._injector.source, barrier=str(barrier), reason=str(cause)
        )
        failure.__cause__ = cause  # compiled code drops the cause of `raise … from`
        self.failed = failure
        self._on_failure(failure)
        return failure
