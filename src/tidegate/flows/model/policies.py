"""Policies: how often and when something is tried again, and how many failures are borne."""

from __future__ import annotations

from dataclasses import dataclass


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
