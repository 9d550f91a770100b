"""The process group: who is here, messages between them, and barriers that say how they ended.

    with Coordinator("tcp://127.0.0.1:7001", secret=secret):      # in one process
        …
    group = Group.join("worker 1", address="tcp://127.0.0.1:7001", secret=secret)   # in each
    group.publish("progress", b"half")
    group.processing_fence("before the switch").raise_for_status()
    group.drain()

A coordinator keeps the members. A member has two connections to it: messages travel on one, and on
the other everything that must not wait for them. A barrier is a round of the coordinator
(`round.py` has its rules): its members are fixed at the first arrival, every caller says what it
requires, and everybody gets one completion with a status for each phase.

- `verdicts` are the words, `wire` the bytes, `round` the rules of one round: values and decisions.
- `rounds`, `roster` and `coordination` are what a coordinator knows; `coordinator` is its thread.
- `handlers`, `intake`, `boots`, `session` and `membership` are what a member knows; `group` is what
  a process uses.

The group is who is here, not what has happened: nothing may depend on a message having arrived.
"""

from tidegate.group.authentication import new_secret
from tidegate.group.coordinator import Coordinator
from tidegate.group.group import Group
from tidegate.group.handlers import Message
from tidegate.group.status import (
    INBOUND,
    NO_SEQUENCE,
    OUTBOUND,
    PROCESSING,
    Completion,
    Failure,
    Member,
    Phase,
    PhaseStatus,
    Require,
    State,
    Timeouts,
)

__all__ = [
    "INBOUND",
    "NO_SEQUENCE",
    "OUTBOUND",
    "PROCESSING",
    "Completion",
    "Coordinator",
    "Failure",
    "Group",
    "Member",
    "Message",
    "Phase",
    "PhaseStatus",
    "Require",
    "State",
    "Timeouts",
    "new_secret",
]
