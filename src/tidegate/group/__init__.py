"""Process groups: live membership, messages between members, and phased barriers.

    with Coordinator("tcp://127.0.0.1:7001", secret=secret):      # in one process
        …
    group = Group.join("worker 1", address="tcp://127.0.0.1:7001", secret=secret)   # in each
    group.publish("progress", b"half")
    group.processing_fence("before the switch").raise_for_status()
    group.drain()

The coordinator keeps the member table. A member has two connections to it: one for messages and
one for control frames, which never queue behind messages. A barrier call takes part in a round
(rules in `coordinator/round.py`): its members are fixed at the first arrival, each caller declares
what it requires, and each caller gets one completion with a status per phase.

- `protocol/` are the frames and proofs that travel between members and coordinator.
- `coordinator/` keeps members and rounds; `round` decides one barrier round without I/O.
- `member/` is the member's side: connections, messages, handlers. `group` is the public handle.

The group is the set of live processes, not a record of what happened: messages are hints, and
nothing may depend on a message having arrived.
"""

from tidegate.group.coordinator.coordinator import Coordinator
from tidegate.group.group import Group
from tidegate.group.member.handlers import Message
from tidegate.group.protocol.authentication import new_secret
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
