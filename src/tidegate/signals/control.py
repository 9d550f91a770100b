"""Control signals: what travels beside the data and tells processors what to do.

A signal is either an *instant*, acted on as soon as it is read, or a *barrier*, held at every
fan-in until all upstreams have delivered it. A kind says what is meant; the head of the
pipeline turns it into a signal by giving it an id (`kind.with_id(n)`). Whoever stops asks
`is_terminal`, and nothing else decides it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar

from tidegate.errors import InvalidSignalId

WHOLE_PIPELINE = ""
"""The `run` of a signal that is meant for everything that flows, not for one run."""


class Carrier(Enum):
    """The two channels between a pair of processors. A signal travels on exactly one."""

    DATA = "data"
    CONTROL = "control"


class BarrierKind(Enum):
    """What a barrier means, before the head has given it an id.

    >>> BarrierKind.SYNC_TEST.with_id(7, run="march")
    Barrier(id=7, kind=<BarrierKind.SYNC_TEST: 'sync_test'>, run='march', count=None)
    """

    GRACEFUL_END = "graceful_end"
    END_OF_RUN = "end_of_run"
    CHECKPOINT = "checkpoint"
    SYNC_TEST = "sync_test"

    @property
    def is_terminal(self) -> bool:
        """Whether a processor stops after forwarding it."""
        return self is BarrierKind.GRACEFUL_END

    def with_id(self, id: int, run: str = WHOLE_PIPELINE) -> Barrier:
        """The barrier of this kind that the head sends as number `id`."""
        return Barrier(_checked(id), self, run)


class InstantKind(Enum):
    """What an instant signal means, before the head has given it an id."""

    QUICK_END = "quick_end"
    CANCEL = "cancel"
    ABORT = "abort"
    FORGET = "forget"
    """A run is gone: drop what an instant left behind where the run's END had passed already."""

    @property
    def is_terminal(self) -> bool:
        """Whether a processor stops after forwarding it."""
        return self is InstantKind.QUICK_END

    def with_id(self, id: int, run: str = WHOLE_PIPELINE, target: int = 0) -> Instant:
        """The instant of this kind that the head sends as number `id`."""
        return Instant(_checked(id), self, run, target)


@dataclass(frozen=True, slots=True)
class Barrier:
    """A synchronisation point: the same one on every lane, recognised by its id and kind."""

    is_signal: ClassVar[bool] = True

    id: int
    kind: BarrierKind
    run: str = WHOLE_PIPELINE
    count: int | None = None
    """END only: how many messages of the run came before it on this lane."""

    @property
    def is_terminal(self) -> bool:
        """Whether a processor stops after forwarding it."""
        return self.kind.is_terminal

    @property
    def is_end(self) -> bool:
        """Whether it closes its run's lane."""
        return self.kind is BarrierKind.END_OF_RUN

    @property
    def is_checkpoint(self) -> bool:
        """Whether everything before it is one consistent cut."""
        return self.kind is BarrierKind.CHECKPOINT

    def counting(self, count: int) -> Barrier:
        """The same END, declaring how many messages came before it."""
        return replace(self, count=count)

    def is_copy_of(self, other: Barrier) -> bool:
        """Whether both are the same point; the count differs from lane to lane."""
        return self.id == other.id and self.kind is other.kind and self.run == other.run

    def __str__(self) -> str:
        return f"{self.kind.value} #{self.id}" + _of_run(self.run)


@dataclass(frozen=True, slots=True)
class Instant:
    """A signal that is acted on at once. Its id tells a fan-in which copies are repeats."""

    is_signal: ClassVar[bool] = True

    id: int
    kind: InstantKind
    run: str = WHOLE_PIPELINE
    target: int = 0
    """ABORT only: the id of the barrier that is withdrawn."""

    @property
    def is_terminal(self) -> bool:
        """Whether a processor stops after forwarding it."""
        return self.kind.is_terminal

    def __str__(self) -> str:
        target = f" of barrier #{self.target}" if self.target else ""
        return f"{self.kind.value} #{self.id}{target}" + _of_run(self.run)


ControlSignal = Barrier | Instant


def _checked(id: int) -> int:
    if id < 1:
        raise InvalidSignalId(id=id)
    return id


def _of_run(run: str) -> str:
    return f" of run {run!r}" if run else ""
