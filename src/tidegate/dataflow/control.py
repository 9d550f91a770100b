"""Control signals: instants and barriers.

A signal is either an *instant*, handled as soon as it is read, or a *barrier*, held at every
fan-in until all upstreams have delivered it. The head of the pipeline makes a signal of a kind by
giving it an id (`kind.with_id(n)`). `is_terminal` alone decides whether a processor stops.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, ClassVar, Final, final

from mypy_extensions import mypyc_attr

from tidegate.dataflow.checkpoint_barrier import CheckpointBarrier
from tidegate.dataflow.value import Value
from tidegate.errors import InvalidCheckpointBarrier, InvalidSignalId

WHOLE_PIPELINE = ""
"""The `run` of a signal for all runs of a pipeline."""


class Carrier(Enum):
    """The two channels between a pair of processors. A signal travels on exactly one."""

    DATA = "data"
    CONTROL = "control"


class BarrierKind(Enum):
    """The kinds of barriers.

    >>> print(BarrierKind.SYNC_TEST.with_id(7, run="march"))
    sync_test #7 of run 'march'
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
    """The kinds of instants."""

    QUICK_END = "quick_end"
    CANCEL = "cancel"
    ABORT = "abort"
    FORGET = "forget"
    """A run is removed: drop what an instant left behind where the run's END had passed already."""

    @property
    def is_terminal(self) -> bool:
        """Whether a processor stops after forwarding it."""
        return self is InstantKind.QUICK_END

    def with_id(self, id: int, run: str = WHOLE_PIPELINE, target: int = 0) -> Instant:
        """The instant of this kind that the head sends as number `id`."""
        return Instant(_checked(id), self, run, target)


@final
@mypyc_attr(acyclic=True)
class Barrier(Value):
    """A synchronisation point; copies on all channels have the same id and kind."""

    __slots__ = ("checkpoint", "count", "id", "kind", "run")
    __match_args__: ClassVar[tuple[str, ...]] = ("id", "kind", "run", "count", "checkpoint")
    is_signal: Final = True
    is_barrier: Final = True

    id: int
    kind: BarrierKind
    run: str
    count: int | None
    """END only: how many messages of the run came before it on this channel."""
    checkpoint: CheckpointBarrier | None
    """CHECKPOINT only: epoch and flags."""

    def __init__(
        self,
        id: int,
        kind: BarrierKind,
        run: str = WHOLE_PIPELINE,
        count: int | None = None,
        checkpoint: CheckpointBarrier | None = None,
    ) -> None:
        if checkpoint is not None:
            _check_carries(id, kind, checkpoint)
        object.__setattr__(self, "id", id)
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "run", run)
        object.__setattr__(self, "count", count)
        object.__setattr__(self, "checkpoint", checkpoint)

    @staticmethod
    def of_checkpoint(checkpoint: CheckpointBarrier, run: str = WHOLE_PIPELINE) -> Barrier:
        """The message that carries a checkpoint's barrier on the channels of a run."""
        return Barrier(checkpoint.checkpoint_id, BarrierKind.CHECKPOINT, run, checkpoint=checkpoint)

    def as_barrier(self) -> Barrier | None:
        """The barrier itself."""
        return self

    def map(self, change: Callable[[Any], object]) -> Barrier:
        """The signal itself: only events have a payload."""
        return self

    @property
    def is_terminal(self) -> bool:
        """Whether a processor stops after forwarding it."""
        return self.kind.is_terminal

    @property
    def is_end(self) -> bool:
        """Whether it closes its run's channel."""
        return self.kind is BarrierKind.END_OF_RUN

    @property
    def is_checkpoint(self) -> bool:
        """Whether everything before it is part of one checkpoint."""
        return self.kind is BarrierKind.CHECKPOINT

    @property
    def is_unpublished(self) -> bool:
        """Whether state is stored at it and nothing is published."""
        return self.checkpoint is not None and self.checkpoint.is_unpublished

    def counting(self, count: int) -> Barrier:
        """The same END, declaring how many messages came before it."""
        return Barrier(self.id, self.kind, self.run, count, self.checkpoint)

    def is_copy_of(self, other: Barrier) -> bool:
        """Whether both are copies of one barrier.

        The count differs from channel to channel, and so may the checkpoint's flags: a barrier that
        has waited too long is forwarded unaligned.
        """
        return self.id == other.id and self.kind is other.kind and self.run == other.run

    def _fields(self) -> tuple[object, ...]:
        return self.id, self.kind, self.run, self.count, self.checkpoint

    def __str__(self) -> str:
        return f"{self.kind.value} #{self.id}" + _of_run(self.run)


@final
@mypyc_attr(acyclic=True)
class Instant(Value):
    """A signal that is handled at once. A fan-in recognises repeated copies by the id."""

    __slots__ = ("id", "kind", "run", "target")
    __match_args__: ClassVar[tuple[str, ...]] = ("id", "kind", "run", "target")
    is_signal: Final = True
    is_barrier: Final = False

    id: int
    kind: InstantKind
    run: str
    target: int
    """ABORT only: the id of the barrier that is withdrawn."""

    def __init__(
        self, id: int, kind: InstantKind, run: str = WHOLE_PIPELINE, target: int = 0
    ) -> None:
        object.__setattr__(self, "id", id)
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "run", run)
        object.__setattr__(self, "target", target)

    def as_barrier(self) -> Barrier | None:
        """None: it is not a barrier."""
        return None

    def map(self, change: Callable[[Any], object]) -> Instant:
        """The signal itself: only events have a payload."""
        return self

    @property
    def is_terminal(self) -> bool:
        """Whether a processor stops after forwarding it."""
        return self.kind.is_terminal

    def _fields(self) -> tuple[object, ...]:
        return self.id, self.kind, self.run, self.target

    def __str__(self) -> str:
        target = f" of barrier #{self.target}" if self.target else ""
        return f"{self.kind.value} #{self.id}{target}" + _of_run(self.run)


ControlSignal = Barrier | Instant


def _checked(id: int) -> int:
    if id < 1:
        raise InvalidSignalId(id=id)
    return id


def _check_carries(id: int, kind: BarrierKind, checkpoint: CheckpointBarrier) -> None:
    if kind is BarrierKind.CHECKPOINT and checkpoint.checkpoint_id == id:
        return
    raise InvalidCheckpointBarrier(
        checkpoint_id=checkpoint.checkpoint_id,
        epoch=checkpoint.epoch,
        flags=checkpoint.flags,
        reason=f"it does not fit a barrier {kind.value} #{id}",
    )


def _of_run(run: str) -> str:
    return f" of run {run!r}" if run else ""
