"""How long a function has been at work, without the time for which it was kept waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic


class Stopwatch:
    """Started and stopped by the thread at work; others may look at it."""

    __slots__ = ("_at", "_clock")

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._at: tuple[float, float | None] = (0.0, None)
        """Seconds before the last start, and when that was: one value, so that both fit."""

    def start(self) -> None:
        """The function is at work."""
        self._at = (self._at[0], self._clock())

    def stop(self) -> None:
        """It is kept waiting."""
        self._at = (self.seconds, None)

    @contextmanager
    def resting(self) -> Iterator[None]:
        """It is kept waiting until the block is left."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    @property
    def is_running(self) -> bool:
        """Whether the function is at work."""
        return self._at[1] is not None

    @property
    def seconds(self) -> float:
        """At work so far."""
        before, since = self._at
        return before if since is None else before + self._clock() - since
