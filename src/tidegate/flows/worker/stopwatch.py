"""Measures how long a function runs, without the time for which it waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic


class Stopwatch:
    """Started and stopped by the running thread; readable by others."""

    __slots__ = ("_at", "_clock")

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._at: tuple[float, float | None] = (0.0, None)
        """Seconds before the last start, and its time: one value, so that they are consistent."""

    def start(self) -> None:
        """The function runs."""
        self._at = (self._at[0], self._clock())

    def stop(self) -> None:
        """The function waits."""
        self._at = (self.seconds, None)

    @contextmanager
    def resting(self) -> Iterator[None]:
        """The function waits until the block is left."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    @property
    def is_running(self) -> bool:
        """Whether the function runs."""
        return self._at[1] is not None

    @property
    def seconds(self) -> float:
        """Running time so far."""
        before, since = self._at
        return before if since is None else before + self._clock() - since
