"""The time limits of a waiting barrier, by their names in EXPLAIN and settings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bound:
    """A limit on waiting; `seconds` is None where only the client sets one."""

    name: str
    seconds: float | None

    def __str__(self) -> str:
        limit = "(none unless set)" if self.seconds is None else f"{self.seconds:g} s"
        return f"{self.name} {limit}"


ALIGNMENT_SECONDS = 60.0

ALIGNMENT_TIMEOUT = Bound("alignment_timeout", ALIGNMENT_SECONDS)
"""From sending a barrier until all upstreams of every fan-in have delivered it."""

RUN_DEADLINE = Bound("run_deadline", None)
"""From the end of a run to its results; only the client knows how long its data takes."""
