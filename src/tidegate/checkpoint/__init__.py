"""Checkpoints: one point in every channel of a run, at which all sinks publish together.

A checkpoint is triggered for a run under a number that is never used again. Its barrier is injected
at every source that has not ended, travels in order with the data, and is aligned at every fan-in.
Each task that it leaves has acknowledged it, and with it what the task keeps from there on; the
collecting end has then what every sink gave up to this point. One row commits all of that: a cut.

    triggered ─▶ injected ─▶ aligning ─▶ acknowledged ─▶ committed
        └───────────┴────────────┴────────────┴────────▶ aborted, with reason and offender

One that has lost its patience does not wait for the rest of its barriers: whoever has not passed
one on stands where its last step left it, and what is on its way to it belongs to the checkpoint
too. Such a one is unaligned: a run can be restored to it, and sinks do not show it.

`decide` looks at the facts of one run and says what is to be done next; it reads and writes
nothing.
"""

from tidegate.checkpoint.decide import (
    Abort,
    Advance,
    Commit,
    Fail,
    Rest,
    Trigger,
    Unalign,
    Verdict,
    decide,
    tardy,
)
from tidegate.checkpoint.facts import CheckpointFacts, Checkpoints, UnderWay, Waiting
from tidegate.checkpoint.states import OVER, TRANSITIONS, CheckpointState

__all__ = [
    "OVER",
    "TRANSITIONS",
    "Abort",
    "Advance",
    "CheckpointFacts",
    "CheckpointState",
    "Checkpoints",
    "Commit",
    "Fail",
    "Rest",
    "Trigger",
    "Unalign",
    "UnderWay",
    "Verdict",
    "Waiting",
    "decide",
    "tardy",
]
