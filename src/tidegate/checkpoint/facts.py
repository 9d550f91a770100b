"""The checkpoint options of a run, and the facts that the next action is decided from."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.checkpoint.states import CheckpointState


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """When checkpoints of a run are taken, and their bounds. All times are seconds."""

    every: float | None = None
    """From the start of one checkpoint to that of the next; None: only on request."""
    publish: float = 0.0
    """The minimum time between two that sinks publish; those in between only store state."""
    pause: float = 0.5
    """The minimum time from the end of one to the start of the next."""
    unaligned_after: float | None = None
    """How long one waits for barriers before it becomes unaligned; 0: none waits.

    An unaligned checkpoint can be restored; sinks go on showing the last aligned one. So that an
    aligned one succeeds eventually, each that follows an unaligned one waits twice as long.
    """
    alignment: float = 60.0
    """How long a fan-in may wait for the rest of the barriers."""
    acknowledgement: float = 300.0
    """From the start until the result collector has acknowledged it."""
    commit: float = 30.0
    """From there until it is committed."""
    tolerated: int | None = 3
    """How many may fail in a row before the run fails; None: any number."""
    retained: int = 3
    """How many of the last committed ones can be read and restored."""


@dataclass(frozen=True, slots=True)
class WaitingTask:
    """A task that has received the barrier on some channel and has not forwarded it."""

    task: str
    missing: tuple[str, ...]
    """The upstreams that have not delivered it; none: the task itself is at work."""
    seconds: float


@dataclass(frozen=True, slots=True)
class PendingCheckpoint:
    """A checkpoint that is neither committed nor aborted."""

    number: int
    state: CheckpointState
    age: float
    """Seconds since it was triggered."""
    not_injected: tuple[str, ...] = ()
    """Sources that have neither injected the barrier nor ended."""
    acknowledged: frozenset[str] = frozenset()
    """The tasks that have acknowledged it."""
    waiting: tuple[WaitingTask, ...] = ()
    complete_for: float | None = None
    """Seconds since the result collector acknowledged it."""
    patience: float | None = None
    """The age at which it becomes unaligned; None: never."""


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """The facts of one run."""

    checkpoints: Checkpoints
    collector: str
    """The task of the result collector."""
    is_open: bool = True
    has_open_source: bool = True
    since: float = 0.0
    """Seconds since the last checkpoint was triggered, or since the run began."""
    rested: float = 0.0
    """Seconds since the last checkpoint was committed or aborted, or since the run began."""
    unpublished: float = 0.0
    """Seconds since the last published one, or since the run began."""
    failures: int = 0
    """How many have failed since the last committed one."""
    unaligned: int = 0
    """How many were unaligned since the last published one, of those that are retained."""
    pending: PendingCheckpoint | None = None
