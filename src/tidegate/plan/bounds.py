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


ALIGNMENT_TIMEOUT = Bound("alignment_timeout", 60.0)
"""From the first upstream that delivered a barrier to the last one."""

RUN_DEADLINE = Bound("run_deadline", None)
"""From the start of a run to its results: how long data takes is known to the client alone."""
