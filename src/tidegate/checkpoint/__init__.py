"""Checkpoints: one consistent point in every channel of a run, at which all sinks publish together.

A checkpoint is triggered for a run under a number that is never reused. Its barrier is injected at
every source that has not ended, travels in order with the data, and is aligned at every fan-in.
When the barrier leaves a task, the task acknowledges it with its state; when it has reached the
result collector, the results of all sinks up to this point are there. One row commits all of it.

    triggered ─▶ injected ─▶ aligning ─▶ acknowledged ─▶ committed
        └───────────┴────────────┴────────────┴────────▶ aborted, with reason and offender

After `unaligned_after` seconds a checkpoint becomes unaligned and does not wait for the rest of its
barriers: a task that has not forwarded one is recorded at its last commit, together with the
messages in flight to it. A run can be restored to such a checkpoint; sinks do not publish it.

`decide` maps the facts of one run to the next action, without I/O.
"""

from tidegate.checkpoint.decide import (
    Abort,
    ChangeState,
    Commit,
    Fail,
    NoAction,
    Trigger,
    Unalign,
    Verdict,
    decide,
    overdue,
)
from tidegate.checkpoint.facts import (
    CheckpointFacts,
    Checkpoints,
    PendingCheckpoint,
    WaitingTask,
)
from tidegate.checkpoint.states import FINAL_STATES, TRANSITIONS, CheckpointState

__all__ = [
    "FINAL_STATES",
    "TRANSITIONS",
    "Abort",
    "ChangeState",
    "CheckpointFacts",
    "CheckpointState",
    "Checkpoints",
    "Commit",
    "Fail",
    "NoAction",
    "PendingCheckpoint",
    "Trigger",
    "Unalign",
    "Verdict",
    "WaitingTask",
    "decide",
    "overdue",
]
