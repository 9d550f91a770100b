"""What a closed run without results means for those who wait for them."""

from __future__ import annotations

from tidegate.errors import RunCancelled, RunFailed, RunOverdue
from tidegate.store.runs.runs import RunInfo, RunState

OVERDUE = "its deadline has passed"
"""How the cause of a run begins that was not complete in time."""


def raise_if_unsuccessful(run: RunInfo) -> None:
    """Raise what became of a run that failed or was cancelled."""
    if run.state is RunState.FAILED:
        cause = run.cause or "unknown"
        raise (RunOverdue if cause.startswith(OVERDUE) else RunFailed)(run=run.name, cause=cause)
    if run.state is RunState.CANCELLED:
        raise RunCancelled(run=run.name)
