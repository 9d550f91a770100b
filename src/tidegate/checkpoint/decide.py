"""The decision: begin a checkpoint, move it on, commit it, or give it up and say whose fault."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tidegate.checkpoint.facts import CheckpointFacts, UnderWay
from tidegate.checkpoint.states import CheckpointState
from tidegate.errors import counted


@dataclass(frozen=True, slots=True)
class Rest:
    """There is nothing to do now."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """Begin a checkpoint; a quiet one only keeps states."""

    is_unpublished: bool = False
    patience: float | None = None
    """Seconds that it waits for barriers; None: for all of them."""


@dataclass(frozen=True, slots=True)
class Advance:
    """The one under way has come this far."""

    to: CheckpointState


@dataclass(frozen=True, slots=True)
class Unalign:
    """The one under way waits no longer: what is on its way belongs to it."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Everybody has acknowledged the one under way: make it a cut."""


@dataclass(frozen=True, slots=True)
class Abort:
    """Give the one under way up."""

    reason: str
    offender: str


@dataclass(frozen=True, slots=True)
class Fail:
    """Too many have failed: the run does."""

    cause: str


Verdict = Rest | Trigger | Advance | Unalign | Commit | Abort | Fail

_S = CheckpointState

MOST_DOUBLINGS = 8
"""Of the patience of one that follows others which have lost theirs."""


def decide(facts: CheckpointFacts) -> Verdict:
    """What the facts of one run lead to.

    >>> from tidegate.checkpoint import Checkpoints
    >>> decide(CheckpointFacts(Checkpoints(every=5.0), "c", since=4.0))
    Rest()
    >>> decide(CheckpointFacts(Checkpoints(every=5.0), "c", since=6.0, rested=2.0))
    Trigger(is_unpublished=False, patience=None)
    >>> decide(CheckpointFacts(Checkpoints(), "c", under_way=UnderWay(7, _S.INJECTED, 301.0)))
    Abort(reason='nobody acknowledged it within 300 s', offender='c')
    """
    if facts.under_way is not None:
        return _about(facts, facts.under_way)
    tolerated = facts.checkpoints.tolerated
    if facts.is_open and tolerated is not None and facts.failures > tolerated:
        return Fail(f"{counted(facts.failures, 'checkpoint')} in a row failed")
    return _next(facts) if _is_due(facts) else Rest()


def _next(facts: CheckpointFacts) -> Trigger:
    """One that waits for nobody is never shown; one that may be has more patience each time."""
    patience = facts.checkpoints.unaligned_after
    if patience is not None:
        patience *= 2 ** min(facts.unaligned, MOST_DOUBLINGS)
    return Trigger(facts.unpublished < facts.checkpoints.publish or patience == 0, patience)


def _is_due(facts: CheckpointFacts) -> bool:
    if not (facts.is_open and facts.has_open_source) or facts.checkpoints.every is None:
        return False
    return facts.since >= facts.checkpoints.every and facts.rested >= facts.checkpoints.pause


def _about(facts: CheckpointFacts, it: UnderWay) -> Verdict:
    is_complete = facts.collector in it.acknowledged
    if is_complete and it.state is _S.ACKNOWLEDGED:
        return _in_time_to_commit(facts, it)
    if not facts.is_open and not is_complete:
        return Abort("the run was closed", "whoever closed it")
    if it.patience is not None and it.age >= it.patience and not is_complete:
        return Unalign()
    return next(_broken_bounds(facts, it), None) or _progress(it, is_complete=is_complete)


def _in_time_to_commit(facts: CheckpointFacts, it: UnderWay) -> Verdict:
    bound = facts.checkpoints.commit
    if it.complete_for is not None and it.complete_for > bound:
        return Abort(f"it was not committed within {bound:g} s", "the coordinator")
    return Commit()


def _progress(it: UnderWay, *, is_complete: bool) -> Verdict:
    """One state after the other, so that each is seen, however fast they follow each other."""
    following = {
        _S.TRIGGERED: _S.INJECTED if is_complete or not it.owing else None,
        _S.INJECTED: _S.ALIGNING if it.acknowledged or it.waiting else None,
        _S.ALIGNING: _S.ACKNOWLEDGED if is_complete else None,
    }
    to = following.get(it.state)
    return Advance(to) if to is not None else Rest()


def _broken_bounds(facts: CheckpointFacts, it: UnderWay) -> Iterator[Abort]:
    if facts.collector in it.acknowledged:
        return
    bound = facts.checkpoints.alignment
    for waiting in it.waiting:
        if waiting.missing and waiting.seconds > bound:
            yield Abort(f"{waiting.task} has waited {waiting.seconds:.1f} s of {bound:g} s for the"
                        f" rest of its copies", ", ".join(waiting.missing))  # fmt: skip
    bound = facts.checkpoints.acknowledgement
    if it.age > bound:
        yield Abort(_why_not_acknowledged(it, bound), _offender(facts, it))


def tardy(facts: CheckpointFacts) -> str | None:
    """Who is to be warned of, because half of a bound has passed; None: nobody.

    >>> from tidegate.checkpoint import Checkpoints
    >>> tardy(CheckpointFacts(Checkpoints(), "c", under_way=UnderWay(7, _S.INJECTED, 151.0)))
    'c'
    """
    checkpoints = facts.checkpoints
    half = replace(
        checkpoints,
        alignment=checkpoints.alignment / 2,
        acknowledgement=checkpoints.acknowledgement / 2,
    )
    its = facts.under_way
    broken = next(_broken_bounds(replace(facts, checkpoints=half), its), None) if its else None
    return broken.offender if broken else None


def _why_not_acknowledged(it: UnderWay, bound: float) -> str:
    if it.owing:
        return f"it was not injected within {bound:g} s"
    if not it.waiting:
        return f"nobody acknowledged it within {bound:g} s"
    return f"it was not acknowledged within {bound:g} s"


def _offender(facts: CheckpointFacts, it: UnderWay) -> str:
    """A source that owes it, else who has it from all sides and keeps it, else who waits."""
    if it.owing:
        return ", ".join(f"source {source}" for source in it.owing)
    at_work = [waiting.task for waiting in it.waiting if not waiting.missing]
    missing = [name for waiting in it.waiting for name in waiting.missing]
    return ", ".join(dict.fromkeys(at_work or missing)) or facts.collector
