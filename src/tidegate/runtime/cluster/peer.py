"""A process of a deployment as a member of its group.

    stats      what a process has done so far
    drain      hand over all tasks and end
    stop       the deployment stops
    fence      meet at a barrier of this name, after all earlier messages are handled

Stats are hints; the effects of drain and stop are seen in the database. Without a coordinator no
message is delivered and work goes on: commits are announced by PostgreSQL, not by the group.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Event, Lock
from time import monotonic
from typing import Self

import msgspec

from tidegate.errors import GroupError, MemberReplaced
from tidegate.group import Completion, Failure, Group, Member, Message
from tidegate.runtime.cluster.discovery import GroupAddress

log = logging.getLogger(__name__)

STATS, DRAIN, STOP, FENCE = "stats", "drain", "stop", "fence"
FENCE_BOUND = 30.0
"""Seconds for all members to reach a fence and to handle their earlier messages."""
JOIN_BOUND = 10.0
LEAVE_BOUND = 5.0
POLL = 0.2
"""Seconds between two checks of the member list."""


class Stats(msgspec.Struct, frozen=True):
    """What a process has done so far."""

    name: str
    role: str
    did: dict[str, int]
    is_final: bool = False
    warning: str = ""
    """For the operator; empty if there is none."""

    def __str__(self) -> str:
        """One line of a summary.

        >>> print(Stats("worker-1", "worker", {"jobs": 1200, "releases": 0}))
        worker-1 (worker): 1,200 jobs
        """
        done = ", ".join(f"{number:,} {what}" for what, number in self.did.items() if number)
        return f"{self.name} ({self.role}): {done or 'nothing'}"


@dataclass(frozen=True)
class Departure:
    """A member that has left; without final stats it was lost."""

    last: Stats | None


class GroupPeer:
    """This process in the group of its deployment."""

    def __init__(self) -> None:
        self._joined: Future[Group] = Future()
        """Messages may arrive before `join` has returned."""
        self._lock = Lock()
        self._stats: dict[str, Stats] = {}
        self._never = Event()
        self.stop_requested = Event()
        self.drain_requested = Event()

    @classmethod
    def join(cls, name: str, address: GroupAddress, timeout: float = JOIN_BOUND) -> Self:
        """Join the group of a deployment."""
        peer = cls()
        handlers = {
            STATS: peer._record_stats,
            DRAIN: lambda _: peer.drain_requested.set(),
            STOP: lambda _: peer.stop_requested.set(),
            FENCE: peer._join_fence,
        }
        group = Group.join(
            name, address=address.address, secret=address.secret, handlers=handlers, timeout=timeout
        )
        peer._joined.set_result(group)
        return peer

    @property
    def name(self) -> str:
        """The name of this process."""
        return self.group.name

    @property
    def group(self) -> Group:
        """The joined group."""
        return self._joined.result(JOIN_BOUND)

    @property
    def stats(self) -> dict[str, Stats]:
        """The latest stats of every other process, by name."""
        with self._lock:
            return dict(self._stats)

    @property
    def is_replaced(self) -> bool:
        """Whether another process has joined under this name."""
        try:
            self.group.wait_for((), 0.0)
        except GroupError as end:
            return isinstance(end, MemberReplaced)
        return False

    # --- sending ---

    def hint(self, topic: str, payload: bytes = b"") -> None:
        """Publish a message that may be lost."""
        try:
            self.group.publish(topic, payload)
        except GroupError as error:
            log.debug("could not publish %s of %s: %s", topic, self.name, error)

    def publish_stats(self, stats: Stats) -> None:
        """Publish what this process has done so far."""
        self.hint(STATS, msgspec.json.encode(stats))

    def order(self, member: str, topic: str) -> None:
        """Send DRAIN or STOP to one member; raises `UnknownMember`."""
        self.group.send(member, topic)

    def fence(self, name: str, bound: float = FENCE_BOUND) -> Completion:
        """Call all members to a fence that completes when earlier messages are handled."""
        self.hint(FENCE, name.encode())
        return self.group.processing_fence(name, timeout=bound)

    def leave(self) -> None:
        """Leave the group orderly."""
        self.group.drain(timeout=LEAVE_BOUND)

    # --- waiting for members ---

    @property
    def members(self) -> tuple[Member, ...]:
        """The present members."""
        return self.group.members

    def is_gone(self, name: str) -> bool:
        """Whether a process is certainly no member; unknown, so False, without a coordinator."""
        names = {member.name for member in self.members}
        return self.group.is_connected and self.name in names and name not in names

    def wait_until_gone(self, name: str, timeout: float) -> Departure | None:
        """Wait until a member has left; None if it has not in time."""
        if not self.wait(lambda: self.is_gone(name), timeout):
            return None
        last = self.stats.get(name)
        return Departure(last if last is not None and last.is_final else None)

    def wait_for_final_stats(self, names: set[str], timeout: float) -> bool:
        """Whether all of these publish final stats, or are gone, in time."""

        def is_over() -> bool:
            final = {stats.name for stats in self.stats.values() if stats.is_final}
            return all(name in final or self.is_gone(name) for name in names)

        return self.wait(is_over, timeout)

    def wait(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Whether a condition becomes true in time."""
        until = monotonic() + timeout
        while not condition():
            if monotonic() > until:
                return False
            self._never.wait(POLL)
        return True

    # --- handlers ---

    def _record_stats(self, message: Message) -> None:
        try:
            stats = msgspec.json.decode(message.payload, type=Stats)
        except msgspec.DecodeError as error:
            log.warning("%s published stats that cannot be decoded: %s", message.sender, error)
            return
        with self._lock:
            self._stats[message.sender] = stats

    def _join_fence(self, message: Message) -> None:
        """Take part in a fence; the handler waits there, as all members do."""
        name = message.payload.decode(errors="replace")
        try:
            completion = self.group.processing_fence(name, timeout=FENCE_BOUND)
        except GroupError as error:
            log.info("%s did not take part in fence %r: %s", self.name, name, error)
            return
        if completion.rendezvous.failure is Failure.TIMEOUT:
            log.info("%s", completion)
