"""The states of a live pipeline and its processors, and what a close comes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class PipelineState(Enum):
    """Where a live pipeline stands."""

    RUNNING = "running"
    CLOSING = "closing"
    CLOSED = "closed"
    FAILED = "failed"


TRANSITIONS: Mapping[PipelineState, frozenset[PipelineState]] = {
    PipelineState.RUNNING: frozenset({PipelineState.CLOSING, PipelineState.FAILED}),
    PipelineState.CLOSING: frozenset({PipelineState.CLOSED, PipelineState.FAILED}),
    PipelineState.CLOSED: frozenset(),
    PipelineState.FAILED: frozenset(),
}
"""Every legal change of state. Whatever is not listed does not happen."""


class ProcessorState(Enum):
    """Where one processor stands; `RUNNING` is read off its thread, not remembered."""

    RUNNING = "running"
    ENDED = "ended"
    STOPPED = "stopped"
    FAILED = "failed"


class HowClosed(Enum):
    """What a close came to."""

    GRACEFUL = "graceful"
    QUICK = "quick"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CloseReport:
    """How a pipeline was closed, who was late, and what was dropped on the way."""

    how: HowClosed
    late: tuple[str, ...]
    """Who kept a graceful close from its end; after a quick one, who has not stopped."""
    discarded: int
    """Messages that were accepted and not processed; 0 when graceful."""
    unfinished: tuple[str, ...]
    """Runs whose END had not come through; nothing of them was published."""
    seconds: float


@dataclass(frozen=True, slots=True)
class ProcessorStatus:
    """One processor: its state, and how deep its data inputs are and have been."""

    name: str
    state: ProcessorState
    depth: int
    peak_depth: int
