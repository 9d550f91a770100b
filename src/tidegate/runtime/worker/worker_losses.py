"""Taking a task from a worker that was lost: counts the loss, and fails a run that costs too many.

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

MOST_LOSSES = 3
"""Worker processes that may be lost while each processes the same run alone."""
UNREPORTED = "it could not report why"


def take(
    connection: Connection, pipeline: str, task: str, wanted: Lease, most: int
) -> TaskAcquisition | None:
    """Take a task, if it is free; runs that have cost `most` workers fail."""
    taken = acquire_task(connection, pipeline, task, wanted)
    failed = lost_too_many(taken.lost_with, most) if taken is not None else []
    if failed:
        fail_runs(connection, failed)
    return taken


def lost_too_many(lost_with: Iterable[WorkerLoss], most: int) -> list[RunFailure]:
    """The runs that have cost this many workers, each with its cause."""
    causes = {
        it.run: RunLosesWorkers(it.name, it.task, it.losses, it.error or UNREPORTED)
        for it in lost_with
        if it.losses >= max(1, most)
    }
    return [RunFailure(run, str(cause)) for run, cause in causes.items()]


def log_losses(task: str, taken: TaskAcquisition, most: int) -> None:
    """Log which runs were the cause of a lost worker, or may have been."""
    for it in taken.lost_with:
        log.warning(
            "worker %s was lost while it processed run %r (id %d) alone in task %s: %s;"
            " this run has cost %d workers of at most %d",
            taken.lost_worker, it.name, it.run, it.task, it.error or UNREPORTED, it.losses, most,
        )  # fmt: skip
    if taken.lost_worker is not None and taken.isolated_runs:
        log.info(
            "worker %s was lost with task %s; each of these runs is processed alone next: %s",
            taken.lost_worker, task, listed([str(run) for run in taken.isolated_runs]),
        )  # fmt: skip
