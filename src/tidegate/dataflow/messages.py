"""What travels on a data channel: events, watermarks and signals, in one order.

Every message can be asked the same: `is_signal`, `is_barrier`, `as_barrier()`, and `map`, which
changes the payload of an event and leaves everything else as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from tidegate.dataflow.control import Barrier, Instant

T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class Event(Generic[T_co]):
    """One batch of a run's data. Tidegate moves it and never looks inside."""

    is_signal: ClassVar[bool] = False
    is_barrier: ClassVar[bool] = False

    payload: T_co
    run: str
    shard: int | None = None
    """Where an exchange sends it: the shard of the receiving stage. None goes to every channel."""
    port: int = 0
    """By which input of the fan-in it came (0 is a join's left side); set by the barrier node."""
    version: int = 0
    """The checkpoint for which it was made: part of a whole that the next one replaces. With 0 it
    is there for good, and everything that comes is added to it."""

    def goes_to(self, shard: int | None) -> bool:
        """Whether a channel to this shard gets it; a channel that is no part of an exchange gets
        all.
        """
        return shard is None or self.shard is None or self.shard == shard

    def arriving_by(self, port: int) -> Event[T_co]:
        """The same event, marked with the input it came by."""
        if port == self.port:
            return self
        return Event(self.payload, self.run, self.shard, port, self.version)

    def as_barrier(self) -> Barrier | None:
        """None: nobody waits for it."""
        return None

    def map(self, change: Callable[[T_co], U]) -> Event[U]:
        """The same event with another payload."""
        return Event(change(self.payload), self.run, self.shard, self.port, self.version)

    def __str__(self) -> str:
        return f"event of run {self.run!r}: {_shown(self.payload)}"


@dataclass(frozen=True, slots=True)
class Watermark:
    """A promise that no event at or before `time` (milliseconds since 1970) follows."""

    is_signal: ClassVar[bool] = False
    is_barrier: ClassVar[bool] = False

    time: int
    run: str

    def as_barrier(self) -> Barrier | None:
        """None: nobody waits for it."""
        return None

    def map(self, change: Callable[[Any], object]) -> Watermark:
        """Itself: only payloads of events are changed."""
        return self

    def __str__(self) -> str:
        return f"watermark {self.time} of run {self.run!r}"


def _shown(payload: object) -> str:
    try:
        return f"{payload!r:.200}"
    except Exception:  # noqa: BLE001  whoever reports a failure must not fail because of it
        return f"a {type(payload).__name__} that cannot be shown"


StreamMessage = Event[object] | Watermark | Barrier | Instant
