"""Backoff: the pauses between attempts, growing up to a limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from random import random


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses before another attempt: ever longer up to a limit, with jitter.

    >>> Backoff(first=1, factor=2, longest=5).pause(attempt=2)
    2.0
    """

    first: float = 0.5
    factor: float = 2.0
    longest: float = 60.0
    jitter: float = 0.5
    """The random part of a pause, so that many clients do not retry at the same time."""

    def pause(self, attempt: int, chance: float = 1.0) -> float:
        """Seconds after this attempt (the first is 1); `chance` is a random number in 0…1."""
        exponent = min(attempt - 1, 1000)
        try:
            whole = self.first * self.factor**exponent
        except OverflowError:
            whole = self.longest
        return min(whole, self.longest) * (1.0 - self.jitter * (1.0 - chance))

    def pauses(self) -> Iterator[float]:
        """The pauses after the first, second, … attempt, with random jitter; without an end."""
        return (self.pause(attempt, random()) for attempt in count(1))  # noqa: S311  no secret
