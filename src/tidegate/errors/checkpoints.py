"""Cuts that cannot be taken, and runs that cannot go back to one."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.errors.runs import RunError
from tidegate.errors.usage import UsageError


class NothingToCheckpoint(RunError):
    """A checkpoint was asked for when no source of the run can bring anything new."""

    http_status = 409

    run: str
    message = "run {run!r} cannot be cut: all its sources have ended. Wait for its results instead"


class CheckpointUnderWay(RunError):
    """A checkpoint was asked for while another is not over; there is one at a time."""

    http_status = 409

    retryable = True

    run: str
    number: int
    message = "run {run!r} cannot be cut now: checkpoint {number} is under way. Wait for it"


class CheckpointPending(RunError):
    """A checkpoint is not over within the time that somebody was ready to wait; it goes on."""

    retryable = True

    run: str
    number: int
    seconds: float
    message = "checkpoint {number} of run {run!r} is not over after {seconds:g} s, and goes on"


class CheckpointAborted(RunError):
    """A checkpoint was given up. The run goes on, and its number is not used again."""

    run: str
    number: int
    reason: str
    offender: str
    message = "checkpoint {number} of run {run!r} was given up: {reason}. Held up by {offender}"


class UnknownCheckpoint(RunError):
    """A cut was asked for that the run does not have, or not any more."""

    http_status = 404

    run: str
    wanted: str
    known: str
    message = "run {run!r} does not have {wanted}; there is: {known}"


class CheckpointDamaged(RunError):
    """A run was to be restored to a cut whose files are gone or not as they were."""

    http_status = 409

    run: str
    number: int
    files: str
    intact: str
    message = (
        "run {run!r} cannot be restored to cut {number}: {files} gone or damaged; nothing was"
        " changed. The newest other cut that is intact: {intact}"
    )


class OtherPlan(UsageError):
    """A pipeline is to be served, or a run restored, under another plan than runs were begun with.

    When a run is to be restored, `difference` tells how the plan differs from that of the cut, and
    `obstacles` why what the run keeps does not fit it.
    """

    http_status = 409

    message = (
        "runs of {pipeline!r} are open that were begun with another plan than {plan:.12}: {runs}."
        " Serve them with the declaration and the shards they were begun with, or cancel them."
    )

    pipeline: str
    plan: str
    runs: str
    difference: tuple[str, ...] = ()
    obstacles: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.obstacles:
            return super().__str__()
        checkpoint = f"run {self.runs!r} of {self.pipeline!r} was cut under another plan than"
        todo = (
            "Restore it with the declaration and the shards that it was cut with (--declared,"
            " --shards), or begin another run."
        )
        told = _few("what differs", self.difference), _few("why it does not fit", self.obstacles)
        does_not_fit = f"{checkpoint} {self.plan:.12}, and what it keeps does not fit this one."
        return "\n".join([does_not_fit, *told[0], *told[1], todo])


def _few(title: str, lines: Sequence[str], most: int = 8) -> list[str]:
    """A title and the first lines below it; nothing where there are none."""
    more = [f"… and {len(lines) - most} more"] if len(lines) > most else []
    return [f"{title}:", *(f"  {line}" for line in (*lines[:most], *more))] if lines else []


class StillServed(UsageError):
    """A run is to go on under another plan while somebody serves its pipeline, maybe as it was."""

    message = (
        "run {run!r} is to go on under another plan while {pipeline!r} is served by {owners};"
        " stop that first, and serve the changed declaration afterwards"
    )

    pipeline: str
    run: str
    owners: str
