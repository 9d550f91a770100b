"""The lives of a run, a step and a task of a flow, each as one table.

The database knows the same tables (`tidegate.flow_may_move`); a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class FlowState(Enum):
    """How far a run of a flow has come."""

    RUNNING = "running"
    PAUSED = "paused"
    """What is at work is finished, and nothing else is begun."""
    CANCELING = "canceling"
    """Nothing is begun any more, and some worker has not yet let go of what it had."""
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"


class StepState(Enum):
    """How far a step of a run has come."""

    WAITING = "waiting"
    """For other steps, or for its signal."""
    RUNNING = "running"
    """It has tasks: its own, and those of its items."""
    COMPLETED = "completed"
    SKIPPED = "skipped"
    """Its condition did not hold, or a step was skipped that it cannot do without."""
    FAILED = "failed"
    CANCELED = "canceled"


class TaskState(Enum):
    """Where one piece of work is: a step's own, or that of one item."""

    READY = "ready"
    HELD = "held"
    """It would be ready if its run were not paused."""
    CLAIMED = "claimed"
    SUSPENDED = "suspended"
    """It waits for a change of the flow's state and holds nothing meanwhile."""
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
"""What may follow what. A failed run goes on when somebody has it tried again."""

STEP_TRANSITIONS: Mapping[StepState, frozenset[StepState]] = {
    _S.WAITING: frozenset({_S.RUNNING, _S.SKIPPED, _S.CANCELED}),
    _S.RUNNING: frozenset({_S.COMPLETED, _S.SKIPPED, _S.FAILED, _S.CANCELED}),
    _S.COMPLETED: frozenset(),
    _S.SKIPPED: frozenset(),
    _S.FAILED: frozenset({_S.RUNNING}),
    _S.CANCELED: frozenset({_S.WAITING, _S.RUNNING}),
}
"""What may follow what; a failed run that is tried again takes its steps with it."""

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
"""What may follow what; a claimed task goes back when it is to be tried again or was let go."""

OVER = frozenset({_F.COMPLETED, _F.FAILED, _F.CANCELED})
"""The states in which nobody has to wait for a run any more."""
