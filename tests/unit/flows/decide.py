"""Decisions about steps, from facts alone: whether one may begin, and how one has ended.

The database decides the same in `tidegate.flow_readiness` and `tidegate.flow_verdict`, so that a
run moves in the transaction that changed a fact; tests compare the two on any facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from tidegate.flows.model.policies import FailAtFirst, FailurePolicy
from tidegate.flows.model.states import StepState


class Readiness(Enum):
    """Whether a step that waits may begin."""

    WAIT = "wait"
    START = "start"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class WaitingFacts:
    """What a step waits for."""

    dependencies: Mapping[str, StepState]
    optional: frozenset[str] = frozenset()
    """The dependencies that it can do without, should they be skipped."""
    needs_signal: bool = False
    has_signal: bool = False


def decide_readiness(facts: WaitingFacts) -> Readiness:
    """Start when every dependency has ended well and the signal is there."""
    states = facts.dependencies
    if any(
        state is StepState.SKIPPED and name not in facts.optional for name, state in states.items()
    ):
        return Readiness.SKIP
    ended = {StepState.COMPLETED, StepState.SKIPPED}
    if not set(states.values()) <= ended or (facts.needs_signal and not facts.has_signal):
        return Readiness.WAIT
    return Readiness.START


class Verdict(Enum):
    """What becomes of a step with items."""

    GO_ON = "go on"
    COMPLETE = "complete"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class ItemCounts:
    """The items of a step: how many there are, and what has become of them."""

    spawned: int
    succeeded: int
    failed: int
    canceled: int = 0
    is_ended: bool = False
    """Whether there will be no more of them."""

    @property
    def terminal(self) -> int:
        """Those that nothing more happens to."""
        return self.succeeded + self.failed + self.canceled

    @property
    def in_flight(self) -> int:
        """Those that something is yet to happen to."""
        return self.spawned - self.terminal


def decide_verdict(counts: ItemCounts, policy: FailurePolicy) -> Verdict:
    """Complete once generating has ended and all items are terminal, if the failures are borne."""
    is_over = counts.is_ended and counts.in_flight == 0
    if isinstance(policy, FailAtFirst):
        is_too_much = counts.failed > 0
    else:
        beyond_count = policy.count is not None and counts.failed > policy.count
        is_too_much = beyond_count or (is_over and _is_beyond_share(counts, policy.share))
    if is_too_much:
        return Verdict.FAIL
    return Verdict.COMPLETE if is_over else Verdict.GO_ON


def _is_beyond_share(counts: ItemCounts, share: float | None) -> bool:
    """By the digits that were written: as binary fractions 29 is more than 0.29 of 100."""
    return share is not None and counts.failed > Fraction(str(share)) * counts.spawned
