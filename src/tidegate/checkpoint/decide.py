"""Decides the next action: trigger a checkpoint, advance, commit or abort it, or fail the run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tidegate.checkpoint.facts import CheckpointFacts, PendingCheckpoint
from tidegate.checkpoint.states import CheckpointState
from tidegate.errors import counted


@dataclass(frozen=True, slots=True)
class NoAction:
    """There is nothing to do now."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """Trigger a checkpoint; an unpublished one only stores state."""

    is_unpublished: bool = False
    patience: float | None = None
    """Seconds after which it becomes unaligned; None: never."""


@dataclass(frozen=True, slots=True)
class ChangeState:
    """The pending checkpoint has reached this state."""

    to: CheckpointState


@dataclass(frozen=True, slots=True)
class Unalign:
    """The pending checkpoint stops waiting: messages in flight become part of pending."""


@dataclass(frozen=True, slots=True)
class Commit:
    """All tasks have acknowledged the pending checkpoint: commit pending."""


@dataclass(frozen=True, slots=True)
class Abort:
    """Give the pending checkpoint up."""

    reason: str
    offender: str


@dataclass(frozen=True, slots=True)
class Fail:
    """Too many checkpoints have failed: the run fails."""

    cause: str


Verdict = NoAction | Trigger | ChangeState | Unalign | Commit | Abort | Fail

_S = CheckpointState

MOST_DOUBLINGS = 8
"""Of `unaligned_after`, for checkpoints that follow unaligned ones."""


def decide(facts: CheckpointFacts) -> Verdict:
    """The next action for one run.

    >>> from tidegate.checkpoint import Checkpoints
    >>> decide(CheckpointFacts(Checkpoints(every=5.0), "c", since=4.0))
    NoAction()
    >>> decide(CheckpointFacts(Checkpoints(every=5.0), "c", since=6.0, rested=2.0))
    Trigger(is_unpublished=False, patience=None)
    >>> pending = PendingCheckpoint(7, _S.INJECTED, age=301.0)
    >>> decide(CheckpointFacts(Checkpoints(), "c", pending=pending))
    Abort(reason='no task acknowledged it within 300 s', offender='c')
    """
    if facts.pending is not None:
        return _about(facts, facts.pending)
    tolerated = facts.checkpoints.tolerated
    if facts.is_open and tolerated is not None and facts.failures > tolerated:
        return Fail(f"{counted(facts.failures, 'checkpoint')} in a row failed")
    return _next(facts) if _is_due(facts) else NoAction()


def _next(facts: CheckpointFacts) -> Trigger:
    """One that waits for no barrier is never published; the others wait longer each time."""
    patience = facts.checkpoints.unaligned_after
    if patience is not None:
        patience *= 2 ** min(facts.unaligned, MOST_DOUBLINGS)
    return Trigger(facts.unpublished < facts.checkpoints.publish or patience == 0, patience)


def _is_due(facts: CheckpointFacts) -> bool:
    if not (facts.is_open and facts.has_open_source) or facts.checkpoints.every is None:
        return False
    return facts.since >= facts.checkpoints.every and facts.rested >= facts.checkpoints.pause


def _about(facts: CheckpointFacts, pending: PendingCheckpoint) -> Verdict:
    is_complete = facts.collector in pending.acknowledged
    if is_complete and pending.state is _S.ACKNOWLEDGED:
        return _in_time_to_commit(facts, pending)
    if not facts.is_open and not is_complete:
        return Abort("the run was closed", "the run")
    if pending.patience is not None and pending.age >= pending.patience and not is_complete:
        return Unalign()
    return next(_broken_bounds(facts, pending), None) or _progress(pending, is_complete=is_complete)


def _in_time_to_commit(facts: CheckpointFacts, pending: PendingCheckpoint) -> Verdict:
    bound = facts.checkpoints.commit
    if pending.complete_for is not None and pending.complete_for > bound:
        return Abort(f"it was not committed within {bound:g} s", "the coordinator")
    return Commit()


def _progress(pending: PendingCheckpoint, *, is_complete: bool) -> Verdict:
    """One state after the other, so that each can be observed."""
    following = {
        _S.TRIGGERED: _S.INJECTED if is_complete or not pending.not_injected else None,
        _S.INJECTED: _S.ALIGNING if pending.acknowledged or pending.waiting else None,
        _S.ALIGNING: _S.ACKNOWLEDGED if is_complete else None,
    }
    to = following.get(pending.state)
    return ChangeState(to) if to is not None else NoAction()


def _broken_bounds(facts: CheckpointFacts, pending: PendingCheckpoint) -> Iterator[Abort]:
    if facts.collector in pending.acknowledged:
        return
    bound = facts.checkpoints.alignment
    for waiting in pending.waiting:
        if waiting.missing and waiting.seconds > bound:
            yield Abort(f"{waiting.task} has waited {waiting.seconds:.1f} s of {bound:g} s for the"
                        f" rest of its barriers", ", ".join(waiting.missing))  # fmt: skip
    bound = facts.checkpoints.acknowledgement
    if pending.age > bound:
        yield Abort(_why_not_acknowledged(pending, bound), _offender(facts, pending))


def overdue(facts: CheckpointFacts) -> str | None:
    """The offender to warn of when half of a bound has passed; None before.

    >>> from tidegate.checkpoint import Checkpoints
    >>> pending = PendingCheckpoint(7, _S.INJECTED, age=151.0)
    >>> overdue(CheckpointFacts(Checkpoints(), "c", pending=pending))
    'c'
    """
    checkpoints = facts.checkpoints
    half = replace(
        checkpoints,
        alignment=checkpoints.alignment / 2,
        acknowledgement=checkpoints.acknowledgement / 2,
    )
    pending = facts.pending
    if pending is None:
        return None
    broken = next(_broken_bounds(replace(facts, checkpoints=half), pending), None)
    return broken.offender if broken else None


def _why_not_acknowledged(pending: PendingCheckpoint, bound: float) -> str:
    if pending.not_injected:
        return f"it was not injected within {bound:g} s"
    if not pending.waiting:
        return f"no task acknowledged it within {bound:g} s"
    return f"it was not acknowledged within {bound:g} s"


def _offender(facts: CheckpointFacts, pending: PendingCheckpoint) -> str:
    """A source that has not injected it, else tasks that hold it, else the upstreams missing."""
    if pending.not_injected:
        return ", ".join(f"source {source}" for source in pending.not_injected)
    at_work = [waiting.task for waiting in pending.waiting if not waiting.missing]
    missing = [name for waiting in pending.waiting for name in waiting.missing]
    return ", ".join(dict.fromkeys(at_work or missing)) or facts.collector
