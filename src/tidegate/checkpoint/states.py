"""The life of a checkpoint, as one table."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class CheckpointState(Enum):
    """How far a checkpoint has come."""

    TRIGGERED = "triggered"
    """It has a number."""
    INJECTED = "injected"
    """Every source that has not ended has its barrier."""
    ALIGNING = "aligning"
    """Some task has acknowledged it, or waits for the rest of its copies."""
    ACKNOWLEDGED = "acknowledged"
    """The collecting end has it, and so has everybody before."""
    COMMITTED = "committed"
    """It is a cut: all sinks show it."""
    ABORTED = "aborted"
    """It was given up, and its number with it."""


_S = CheckpointState

TRANSITIONS: Mapping[CheckpointState, frozenset[CheckpointState]] = {
    _S.TRIGGERED: frozenset({_S.INJECTED, _S.ABORTED}),
    _S.INJECTED: frozenset({_S.ALIGNING, _S.ABORTED}),
    _S.ALIGNING: frozenset({_S.ACKNOWLEDGED, _S.ABORTED}),
    _S.ACKNOWLEDGED: frozenset({_S.COMMITTED, _S.ABORTED}),
    _S.COMMITTED: frozenset(),
    _S.ABORTED: frozenset(),
}
"""What may follow what."""

OVER = frozenset(state for state, following in TRANSITIONS.items() if not following)
"""The states that nothing follows."""
