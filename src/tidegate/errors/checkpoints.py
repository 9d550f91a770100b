"""Cuts that cannot be taken, and runs that cannot go back to one."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.errors.runs import RunError
from tidegate.errors.usage import UsageError


class NothingToCheckpoint(RunError):
    """A checkpoint was asked for when no source of the run can bring anything new."""

    http_status = 409

    run: str
    message = "run {run!r} takes no checkpoint: all its sources have ended. Wait for its results"


class CheckpointUnderWay(RunError):
    """A checkpoint was asked for while another is not over; there is one at a time."""

    http_status = 409

    retryable = True

    run: str
    number: int
    message = "run {run!r} has checkpoint {number} in progress. Wait for it, then take another"


class CheckpointPending(RunError):
    """A checkpoint is not finished when the timeout of the call passed; it continues."""

    retryable = True

    run: str
    number: int
    seconds: float
    message = "checkpoint {number} of run {run!r} is not finished after {seconds:g} s; it continues"


class CheckpointAborted(RunError):
    """A checkpoint was aborted. The run continues, and the number is not used again."""

    run: str
    number: int
    reason: str
    offender: str
    message = "checkpoint {number} of run {run!r} was given up: {reason}. Held up by {offender}"


class UnknownCheckpoint(RunError):
    """The run has no such checkpoint, or no longer has it."""

    http_status = 404

    run: str
    wanted: str
    known: str
    message = "run {run!r} does not have {wanted}; there is: {known}"


class CheckpointDamaged(RunError):
    """A run cannot be restored: files of the checkpoint are missing or damaged."""

    http_status = 409

    run: str
    number: int
    files: str
    intact: str
    message = (
        "run {run!r} cannot be restored to checkpoint {number}: {files} missing or damaged; nothing"
        " was changed. The newest intact checkpoint: {intact}"
    )


class OtherPlan(UsageError):
    """A pipeline is to be served, or a run restored, under another plan than runs were begun with.

    For a restore, `difference` lists how the plan differs from that of the checkpoint, and
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
        checkpoint = f"run {self.runs!r} of {self.pipeline!r} has checkpoints of another plan than"
        todo = (
            "Restore it with the declaration and the shards of its checkpoints (--declared,"
            " --shards), or begin another run."
        )
        details = _few("what differs", self.difference), _few("why it does not fit", self.obstacles)
        does_not_fit = f"{checkpoint} {self.plan:.12}, and what it keeps does not fit this one."
        return "\n".join([does_not_fit, *details[0], *details[1], todo])


def _few(title: str, lines: Sequence[str], most: int = 8) -> list[str]:
    """A title and the first lines below it; nothing where there are none."""
    more = [f"… and {len(lines) - most} more"] if len(lines) > most else []
    return [f"{title}:", *(f"  {line}" for line in (*lines[:most], *more))] if lines else []


class StillServed(UsageError):
    """A run cannot continue under another plan while a process serves its pipeline."""

    message = (
        "run {run!r} is to go on under another plan while {pipeline!r} is served by {owners};"
        " stop that first, and serve the changed declaration afterwards"
    )

    pipeline: str
    run: str
    owners: str
