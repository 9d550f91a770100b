"""Takes over tasks of lost workers: counts the losses, and fails a run that causes too many.

See `tidegate.store.runs.worker_losses` for how a loss is attributed, and `isolated_trials` for how
suspects are processed alone.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidegate.errors import RunLosesWorkers, listed
from tidegate.store import RunFailure, fail_runs
from tidegate.store.runs.worker_losses import acquire_task

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidegate.store import Connection, Lease
    from tidegate.store.runs.worker_losses import TaskAcquisition, WorkerLoss

log = logging.getLogger(__name__)

UNREPORTED = "it could not report why"


def take(
    connection: Connection, pipeline: str, task: str, lease: Lease, most: int
) -> TaskAcquisition | None:
    """Take a task if it is free; fails runs that have caused the loss of `most` workers."""
    taken = acquire_task(connection, pipeline, task, lease)
    failed = lost_too_many(taken.lost_with, most) if taken is not None else []
    if failed:
        fail_runs(connection, failed)
    return taken


def lost_too_many(lost_with: Iterable[WorkerLoss], most: int) -> list[RunFailure]:
    """The runs that have caused the loss of this many workers, each with its cause."""
    causes = {
        loss.run: RunLosesWorkers(loss.name, loss.task, loss.losses, loss.error or UNREPORTED)
        for loss in lost_with
        if loss.losses >= max(1, most)
    }
    return [RunFailure(run, str(cause)) for run, cause in causes.items()]


def log_losses(task: str, taken: TaskAcquisition, most: int) -> None:
    """Log which runs were the cause of a lost worker, or may have been."""
    for loss in taken.lost_with:
        log.warning(
            "worker %s was lost while it processed run %r (id %d) alone in task %s: %s;"
            " losses of this run: %d of at most %d",
            taken.lost_worker, loss.name, loss.run, loss.task, loss.error or UNREPORTED,
            loss.losses, most,
        )  # fmt: skip
    if taken.lost_worker is not None and taken.isolated_runs:
        log.info(
            "worker %s was lost with task %s; each of these runs is processed alone next: %s",
            taken.lost_worker, task, listed([str(run) for run in taken.isolated_runs]),
        )  # fmt: skip
