"""The bounds a waiting barrier is under, by the names users see in EXPLAIN and settings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bound:
    """How long something may wait; `seconds` is None where only the client sets a limit."""

    name: str
    seconds: float | None

    def __str__(self) -> str:
        limit = "(none unless set)" if self.seconds is None else f"{self.seconds:g} s"
        return f"{self.name} {limit}"


ALIGNMENT_SECONDS = 60.0

ALIGNMENT_TIMEOUT = Bound("alignment_timeout", ALIGNMENT_SECONDS)
"""From sending a barrier until all upstreams of every fan-in have delivered it."""

RUN_DEADLINE = Bound("run_deadline", None)
"""From ending a run to its results: how long data takes is known to the client alone."""
