"""What is known of the checkpoints of one run, and how the run wants to be cut."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.checkpoint.states import CheckpointState


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """How a run is cut. All times are seconds."""

    every: float | None = None
    """From the beginning of one checkpoint to that of the next; None: only when asked."""
    publish: float = 0.0
    """The least time between two that sinks show; those in between only keep states."""
    pause: float = 0.5
    """The least time from the end of one to the beginning of the next, however long it took."""
    unaligned_after: float | None = None
    """How long one waits for barriers before it takes what is on its way along; 0: none waits.

    Such a one is there to be restored; sinks go on showing the last that was aligned. So that they
    are shown something some day, each that follows such a one has twice its patience.
    """
    alignment: float = 60.0
    """How long a fan-in may wait for the rest of the copies."""
    acknowledgement: float = 300.0
    """From the beginning until the collecting end has it."""
    commit: float = 30.0
    """From there until it is a cut."""
    tolerated: int | None = 3
    """How many may fail in a row before the run does; None: any number."""
    retained: int = 3
    """How many of the last cuts can be read and restored."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A task that some channel has brought the barrier to, and that has not passed it on."""

    task: str
    missing: tuple[str, ...]
    """Who has not brought it; nobody: the task itself is at work."""
    seconds: float


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A checkpoint that is not over."""

    number: int
    state: CheckpointState
    age: float
    """Seconds since it was triggered."""
    owing: tuple[str, ...] = ()
    """Sources that have neither injected it nor ended."""
    acknowledged: frozenset[str] = frozenset()
    """The tasks it has left."""
    waiting: tuple[Waiting, ...] = ()
    complete_for: float | None = None
    """Seconds since it was seen to be acknowledged by all."""
    patience: float | None = None
    """At which age it waits for barriers no longer; None: it waits for all."""


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """One run."""

    checkpoints: Checkpoints
    collector: str
    """The task where all sinks meet."""
    is_open: bool = True
    has_open_source: bool = True
    since: float = 0.0
    """Seconds since the last checkpoint was begun, or since the run was."""
    rested: float = 0.0
    """Seconds since the last one was over, or since the run began."""
    unpublished: float = 0.0
    """Seconds since the last that sinks show, or since the run began."""
    failures: int = 0
    """How many have failed since the last that was committed."""
    unaligned: int = 0
    """How many have not waited since the last that sinks show, of those that are remembered."""
    under_way: UnderWay | None = None
