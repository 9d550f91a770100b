"""Barriers that break the rules, and channels that cannot be used any more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidegate.errors.base import TidegateError


@dataclass(eq=False)
class InvalidSignalId(TidegateError):
    """A signal was numbered with something the head would never give."""

    id: int
    says: ClassVar[str] = "signal ids start at 1 and only grow, {id} is none; take it from the head"


@dataclass(eq=False)
class AlignmentError(TidegateError):
    """A message broke the rules of a fan-in. The aligner refused it and is as it was before."""


@dataclass(eq=False)
class NoUpstreams(AlignmentError):
    """A fan-in was built over nothing."""

    run: str
    says: ClassVar[str] = (
        "an aligner of run {run!r} expects no upstreams and would never complete anything;"
        " give it at least one input edge"
    )


@dataclass(eq=False)
class UnknownUpstream(AlignmentError):
    """A message came by an edge that the plan does not have."""

    upstream: str
    run: str
    known: str
    says: ClassVar[str] = (
        "{upstream} is not an upstream of this fan-in (run {run!r}); its upstreams are: {known}"
    )


@dataclass(eq=False)
class DuplicateBarrier(AlignmentError):
    """One upstream delivered the same barrier twice; it counts once."""

    upstream: str
    barrier: str
    says: ClassVar[str] = (
        "{upstream} delivered {barrier} a second time; each upstream delivers a barrier once"
    )


@dataclass(eq=False)
class BarrierOverlap(AlignmentError):
    """A different barrier arrived while one was still waiting."""

    upstream: str
    barrier: str
    pending: str
    missing: str
    says: ClassVar[str] = (
        "{upstream} delivered {barrier} while {pending} is pending (still missing from: {missing});"
        " send the next barrier when the last one has completed, or abort that one first"
    )


@dataclass(eq=False)
class BarrierRegressed(AlignmentError):
    """A barrier's id is not above the last one's."""

    upstream: str
    barrier: str
    last: str
    says: ClassVar[str] = "{upstream} delivered {barrier} after {last}; barrier ids only grow"


@dataclass(eq=False)
class TwoEnds(AlignmentError):
    """A run was ended under two different ids."""

    upstream: str
    end: str
    first: str
    says: ClassVar[str] = "{upstream} delivered {end} but the run's END is {first}; a run has one"


@dataclass(eq=False)
class InputClosed(AlignmentError):
    """Something came after the END of its run, or after a terminal."""

    upstream: str
    message: str
    closed_by: str
    says: ClassVar[str] = "{upstream} delivered {message} after {closed_by} had closed its channel"


@dataclass(eq=False)
class CountMismatch(AlignmentError):
    """An END declared another number of messages than its channel carried."""

    upstream: str
    run: str
    declared: int
    received: int
    says: ClassVar[str] = (
        "{upstream} declared {declared} messages of run {run!r} and {received} arrived;"
        " the channel lost or repeated some, so the run cannot be complete"
    )


@dataclass(eq=False)
class CheckpointError(TidegateError):
    """A barrier of a checkpoint is none, or did not get where it should."""


@dataclass(eq=False)
class InvalidCheckpointBarrier(CheckpointError):
    """Numbers that no checkpoint barrier has."""

    checkpoint_id: int
    epoch: int
    flags: int
    reason: str
    says: ClassVar[str] = (
        "there is no barrier of checkpoint {checkpoint_id} with epoch {epoch} and flags {flags}:"
        " {reason}. Take the numbers from the run's coordinator"
    )


@dataclass(eq=False)
class MalformedBarrier(CheckpointError):
    """Bytes that nobody packed as a barrier or a command."""

    what: str
    data: str
    reason: str
    says: ClassVar[str] = (
        "0x{data} is no packed {what}: {reason}. The sender runs another version, or the bytes"
        " were damaged"
    )


@dataclass(eq=False)
class InvalidCheckpointId(CheckpointError):
    """What was given as the id of a checkpoint's manifest is none."""

    text: str
    reason: str
    says: ClassVar[str] = "{text!r} is no id of a checkpoint: {reason}. Copy it from its manifest"


@dataclass(eq=False)
class BarrierInjectionFailed(CheckpointError):
    """A source could not put a barrier on its channels; it takes part in no checkpoint any more."""

    source: str
    barrier: str
    reason: str
    says: ClassVar[str] = (
        "source {source!r} could not inject {barrier}: {reason}. The checkpoint cannot complete;"
        " abort it and restart the source"
    )


@dataclass(eq=False)
class ChannelError(TidegateError):
    """A channel between two processors cannot do what was asked."""

    channel: str


@dataclass(eq=False)
class ChannelClosed(ChannelError):
    """The other end is gone; the message was not accepted."""

    message: str
    says: ClassVar[str] = "channel {channel} is closed; not accepted: {message}"


@dataclass(eq=False)
class ChannelTimeout(ChannelError):
    """The other end did not keep up within the caller's bound."""

    retryable: ClassVar[bool] = True
    doing: str
    seconds: float
    says: ClassVar[str] = "channel {channel}: waited {seconds:g} s for {doing}"


@dataclass(eq=False)
class TooManySignals(ChannelError):
    """The places reserved for signals are taken."""

    retryable: ClassVar[bool] = True
    waiting: int
    says: ClassVar[str] = (
        "channel {channel} has {waiting} messages unread and no place for another signal;"
        " its processor is stuck, or signals are sent faster than it handles them"
    )
