"""Process groups: live membership, messages between members, and phased barriers.

    with Coordinator("tcp://127.0.0.1:7001", secret=secret):      # in one process
        …
    group = Group.join("worker 1", address="tcp://127.0.0.1:7001", secret=secret)   # in each
    group.publish("progress", b"half")
    group.processing_fence("before the switch").raise_for_status()
    group.drain()

The coordinator keeps the member table. A member has two connections to it: one for messages and
one for control frames, which never queue behind messages. A barrier call takes part in a round
(rules in `round.py`): its members are fixed at the first arrival, each caller declares what it
requires, and each caller gets one completion with a status per phase.

- `status`, `wire` and `round` are values and pure decisions: results, frames, one barrier round.
- `rounds`, `member_table` and `coordinator_state` are the coordinator's state; `coordinator` is
  its thread.
- `handlers`, `inbound`, `boot_ids`, `session` and `membership` are the member's side; `group` is
  the public handle.

The group is the set of live processes, not a record of what happened: messages are hints, and
nothing may depend on a message having arrived.
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
