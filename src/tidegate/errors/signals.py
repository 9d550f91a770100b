"""Barriers that break the rules, and channels that cannot be used any more."""

from __future__ import annotations

from tidegate.errors.base import TidegateError


class InvalidSignalId(TidegateError):
    """A signal was numbered with something the head would never give."""

    id: int
    message = "signal ids start at 1 and only grow, {id} is none; take it from the head"


class AlignmentError(TidegateError):
    """A message broke the rules of a fan-in. The aligner refused it and is as it was before."""


class NoUpstreams(AlignmentError):
    """A fan-in was built over nothing."""

    run: str
    message = (
        "an aligner of run {run!r} expects no upstreams and would never complete anything;"
        " give it at least one input edge"
    )


class UnknownUpstream(AlignmentError):
    """A message came by an edge that the plan does not have."""

    upstream: str
    run: str
    known: str
    message = (
        "{upstream} is not an upstream of this fan-in (run {run!r}); its upstreams are: {known}"
    )


class DuplicateBarrier(AlignmentError):
    """One upstream delivered the same barrier twice; it counts once."""

    upstream: str
    barrier: str
    message = "{upstream} delivered {barrier} a second time; each upstream delivers a barrier once"


class BarrierOverlap(AlignmentError):
    """A different barrier arrived while one was still waiting."""

    upstream: str
    barrier: str
    pending: str
    missing: str
    message = (
        "{upstream} delivered {barrier} while {pending} is pending (still missing from: {missing});"
        " send the next barrier when the last one has completed, or abort that one first"
    )


class BarrierRegressed(AlignmentError):
    """A barrier's id is not above the last one's."""

    upstream: str
    barrier: str
    last: str
    message = "{upstream} delivered {barrier} after {last}; barrier ids only grow"


class TwoEnds(AlignmentError):
    """A run was ended under two different ids."""

    upstream: str
    end: str
    first: str
    message = "{upstream} delivered {end} but the run's END is {first}; a run has one"


class InputClosed(AlignmentError):
    """Something came after the END of its run, or after a terminal."""

    upstream: str
    element: str
    closed_by: str
    message = "{upstream} delivered {element} after {closed_by} had closed its channel"


class CountMismatch(AlignmentError):
    """An END declared another number of messages than its channel carried."""

    upstream: str
    run: str
    declared: int
    received: int
    message = (
        "{upstream} declared {declared} messages of run {run!r} and {received} arrived;"
        " the channel lost or repeated some, so the run cannot be complete"
    )


class CheckpointError(TidegateError):
    """A barrier of a checkpoint is none, or did not get where it should."""


class InvalidCheckpointBarrier(CheckpointError):
    """Numbers that no checkpoint barrier has."""

    checkpoint_id: int
    epoch: int
    flags: int
    reason: str
    message = (
        "there is no barrier of checkpoint {checkpoint_id} with epoch {epoch} and flags {flags}:"
        " {reason}. Take the numbers from the run's coordinator"
    )


class MalformedBarrier(CheckpointError):
    """Bytes that are not a packed barrier or command."""

    what: str
    data: str
    reason: str
    message = (
        "0x{data} is no packed {what}: {reason}. The sender runs another version, or the bytes"
        " were damaged"
    )


class InvalidCheckpointId(CheckpointError):
    """What was given as the id of a checkpoint's manifest is none."""

    text: str
    reason: str
    message = "{text!r} is no id of a checkpoint: {reason}. Copy it from its manifest"


class BarrierInjectionFailed(CheckpointError):
    """A source could not put a barrier on its channels; it takes part in no checkpoint any more."""

    source: str
    barrier: str
    reason: str
    message = (
        "source {source!r} could not inject {barrier}: {reason}. The checkpoint cannot complete;"
        " abort it and restart the source"
    )


class ChannelError(TidegateError):
    """A channel between two processors cannot do what was asked."""

    channel: str


class ChannelClosed(ChannelError):
    """The receiver has closed the channel; the message was not accepted."""

    element: str
    message = "channel {channel} is closed; not accepted: {element}"


class ChannelTimeout(ChannelError):
    """The other end did not keep up within the caller's bound."""

    retryable = True
    doing: str
    seconds: float
    message = "channel {channel}: waited {seconds:g} s for {doing}"
