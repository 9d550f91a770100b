"""Stream messages: events, watermarks and signals, which a data channel carries in one order.

All have `is_signal`, `is_barrier`, `as_barrier()`, and `map`, which changes the payload of an event
and leaves every other message as it is.
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
    """One batch of a run's data."""

    is_signal: ClassVar[bool] = False
    is_barrier: ClassVar[bool] = False

    payload: T_co
    run: str
    shard: int | None = None
    """The shard of the receiving stage that an exchange sends it to. None goes to every channel."""
    port: int = 0
    """The input that it arrived by (0 is a join's left side); set by the input gate."""
    version: int = 0
    """The checkpoint that it was made for: it is replaced by the output for the next checkpoint.
    0 is a permanent event, to which later ones are added."""

    def goes_to(self, shard: int | None) -> bool:
        """Whether a channel to this shard carries it; one outside of an exchange carries all."""
        return shard is None or self.shard is None or self.shard == shard

    def arriving_by(self, port: int) -> Event[T_co]:
        """The same event, with the input that it arrived by."""
        if port == self.port:
            return self
        return Event(self.payload, self.run, self.shard, port, self.version)

    def as_barrier(self) -> Barrier | None:
        """None: it is not a barrier."""
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
        """None: it is not a barrier."""
        return None

    def map(self, change: Callable[[Any], object]) -> Watermark:
        """The message itself: only events have a payload."""
        return self

    def __str__(self) -> str:
        return f"watermark {self.time} of run {self.run!r}"


def _shown(payload: object) -> str:
    try:
        return f"{payload!r:.200}"
    except Exception:  # noqa: BLE001  an error report must not fail
        return f"a {type(payload).__name__} without a repr"


StreamMessage = Event[object] | Watermark | Barrier | Instant
