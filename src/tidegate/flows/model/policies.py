"""Failure policies: how many items of a step may fail."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FailAtFirst:
    """An item that has failed finally fails its step and the run."""


@dataclass(frozen=True, slots=True)
class Tolerate:
    """A step completes although some items failed: so many, or such a share of them.

    Exceeding the count fails the step at once; the share is decided when all items are terminal.
    """

    count: int | None = None
    share: float | None = None


FailurePolicy = FailAtFirst | Tolerate

FAIL_AT_FIRST = FailAtFirst()
