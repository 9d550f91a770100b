"""The states of a run, a step and a task, with the legal transitions of each in one table.

The database knows the same tables (`tidegate.flow_may_move`); a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class FlowState(Enum):
    """The state of a run."""

    RUNNING = "running"
    PAUSED = "paused"
    """Tasks in flight finish, and no other is started."""
    CANCELING = "canceling"
    """No task is started any more, and some are still in flight."""
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"


class StepState(Enum):
    """The state of a step."""

    WAITING = "waiting"
    """It waits for other steps, or for its signal."""
    RUNNING = "running"
    """It has tasks: its own, and those of its items."""
    COMPLETED = "completed"
    SKIPPED = "skipped"
    """Its condition did not hold, or a step that it requires was skipped."""
    FAILED = "failed"
    CANCELED = "canceled"


class TaskState(Enum):
    """The state of a task: a step's own function, or one item."""

    READY = "ready"
    HELD = "held"
    """It would be ready if its run were not paused."""
    CLAIMED = "claimed"
    SUSPENDED = "suspended"
    """It waits for state or for a pipeline run, and holds no thread."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"


_F, _S, _T = FlowState, StepState, TaskState

FLOW_TRANSITIONS: Mapping[FlowState, frozenset[FlowState]] = {
    _F.RUNNING: frozenset({_F.PAUSED, _F.CANCELING, _F.COMPLETED, _F.FAILED}),
    _F.PAUSED: frozenset({_F.RUNNING, _F.CANCELING, _F.COMPLETED, _F.FAILED}),
    _F.CANCELING: frozenset({_F.CANCELED}),
    _F.COMPLETED: frozenset(),
    _F.FAILED: frozenset({_F.RUNNING}),
    _F.CANCELED: frozenset(),
}
"""Legal transitions. A failed run is running again when it is retried."""

STEP_TRANSITIONS: Mapping[StepState, frozenset[StepState]] = {
    _S.WAITING: frozenset({_S.RUNNING, _S.SKIPPED, _S.CANCELED}),
    _S.RUNNING: frozenset({_S.COMPLETED, _S.SKIPPED, _S.FAILED, _S.CANCELED}),
    _S.COMPLETED: frozenset(),
    _S.SKIPPED: frozenset(),
    _S.FAILED: frozenset({_S.RUNNING}),
    _S.CANCELED: frozenset({_S.WAITING, _S.RUNNING}),
}
"""Legal transitions; retrying a run retries its failed steps."""

TASK_TRANSITIONS: Mapping[TaskState, frozenset[TaskState]] = {
    _T.READY: frozenset({_T.CLAIMED, _T.HELD, _T.CANCELED}),
    _T.HELD: frozenset({_T.READY, _T.CANCELED}),
    _T.CLAIMED: frozenset(
        {_T.READY, _T.HELD, _T.SUSPENDED, _T.SUCCEEDED, _T.FAILED, _T.CANCELED},
    ),
    _T.SUSPENDED: frozenset({_T.READY, _T.HELD, _T.CANCELED}),
    _T.SUCCEEDED: frozenset(),
    _T.FAILED: frozenset({_T.READY}),
    _T.CANCELED: frozenset({_T.READY}),
}
"""Legal transitions; a claimed task is ready again when it is retried or returned."""

OVER = frozenset({_F.COMPLETED, _F.FAILED, _F.CANCELED})
"""The states in which a run has ended."""
