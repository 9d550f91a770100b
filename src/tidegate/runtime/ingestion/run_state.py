"""The errors for closed runs that have no results."""

from __future__ import annotations

from tidegate.errors import RunCancelled, RunFailed, RunOverdue
from tidegate.store.runs.runs import RunInfo, RunState

OVERDUE = "its deadline has passed"
"""The beginning of the cause of a run that missed its deadline."""


def raise_if_unsuccessful(run: RunInfo) -> None:
    """Raise the error of a run that failed or was cancelled."""
    if run.state is RunState.FAILED:
        cause = run.cause or "unknown"
        raise (RunOverdue if cause.startswith(OVERDUE) else RunFailed)(run=run.name, cause=cause)
    if run.state is RunState.CANCELLED:
        raise RunCancelled(run=run.name)
