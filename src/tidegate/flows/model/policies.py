"""Policies: how often and when something is tried again, and how many failures are borne."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses before another attempt: ever longer up to a limit, with jitter.

    >>> Backoff(first=1, factor=2, longest=5).pause(attempt=2, chance=1.0)
    2.0
    """

    first: float = 0.5
    factor: float = 2.0
    longest: float = 60.0
    jitter: float = 0.5
    """The part of a pause that is left to chance, so that many tasks do not come back at once."""

    def pause(self, attempt: int, chance: float) -> float:
        """Seconds after this attempt (the first is 1); `chance` is a random number in 0…1."""
        exponent = min(attempt - 1, 1000)
        try:
            whole = self.first * self.factor**exponent
        except OverflowError:
            whole = self.longest
        return min(whole, self.longest) * (1.0 - self.jitter * (1.0 - chance))


@dataclass(frozen=True, slots=True)
class FailAtFirst:
    """An item that has failed for good fails its step, and that the run."""


@dataclass(frozen=True, slots=True)
class Tolerate:
    """A step with many items completes although some failed: so many, or such a share of them.

    A count that is exceeded fails the step at once; a share is known when all items are terminal.
    """

    count: int | None = None
    share: float | None = None


FailurePolicy = FailAtFirst | Tolerate

FAIL_AT_FIRST = FailAtFirst()
