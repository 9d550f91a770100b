"""The states of a checkpoint and their transitions."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class CheckpointState(Enum):
    """How far a checkpoint has come."""

    TRIGGERED = "triggered"
    """It has a number."""
    INJECTED = "injected"
    """Every source that has not ended has injected its barrier."""
    ALIGNING = "aligning"
    """A task has acknowledged it, or waits for the rest of its barriers."""
    ACKNOWLEDGED = "acknowledged"
    """The result collector has acknowledged it, and so have all tasks before."""
    COMMITTED = "committed"
    """It is complete; unless it is unpublished, all sinks show it."""
    ABORTED = "aborted"
    """It was given up; its number is not reused."""


_S = CheckpointState

TRANSITIONS: Mapping[CheckpointState, frozenset[CheckpointState]] = {
    _S.TRIGGERED: frozenset({_S.INJECTED, _S.ABORTED}),
    _S.INJECTED: frozenset({_S.ALIGNING, _S.ABORTED}),
    _S.ALIGNING: frozenset({_S.ACKNOWLEDGED, _S.ABORTED}),
    _S.ACKNOWLEDGED: frozenset({_S.COMMITTED, _S.ABORTED}),
    _S.COMMITTED: frozenset(),
    _S.ABORTED: frozenset(),
}
"""By state, its successors."""

FINAL_STATES = frozenset(state for state, following in TRANSITIONS.items() if not following)
"""The states without successors."""
