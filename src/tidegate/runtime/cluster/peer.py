"""A process of a deployment among its colleagues: what they tell each other through the group.

    news       something was committed that others may wait for: look
    stats      what a process has done so far
    drain      hand your tasks over and go
    stop       the deployment stops
    fence      meet at a barrier of this name, with all handlers through

All of these are hints, or orders whose effect is seen in the database. While there is no
coordinator nothing is said, and everybody finds out by looking now and then.
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

NEWS, STATS, DRAIN, STOP, FENCE = "news", "stats", "drain", "stop", "fence"
FENCE_BOUND = 30.0
"""Seconds for the others to come to a fence and to be through with what they heard before."""
JOINING = 10.0
LOOK = 0.2
"""Seconds between two looks at who is here."""


class Stats(msgspec.Struct, frozen=True):
    """What a process has done so far, and whether it does no more."""

    name: str
    role: str
    did: dict[str, int]
    is_final: bool = False
    warning: str = ""
    """What whoever looks after the deployment should know."""

    def __str__(self) -> str:
        """For a list of all of them.

        >>> print(Stats("worker-1", "worker", {"jobs": 1200, "releases": 0}))
        worker-1 (worker): 1,200 jobs
        """
        done = ", ".join(f"{number:,} {what}" for what, number in self.did.items() if number)
        return f"{self.name} ({self.role}): {done or 'nothing'}"


@dataclass(frozen=True)
class Departure:
    """A colleague that is not here any more; without a last word it was lost."""

    last: Stats | None


class GroupPeer:
    """One process in the group of its deployment; the events are set by what others say."""

    def __init__(self, on_news: Callable[[], None]) -> None:
        self._joined: Future[Group] = Future()
        """Others may speak to this process before `join` has returned."""
        self._on_news = on_news
        self._noting = Lock()
        self._stats: dict[str, Stats] = {}
        self._pause = Event()
        """Never set."""
        self.stop_requested = Event()
        self.drain_requested = Event()

    @classmethod
    def join(
        cls,
        name: str,
        place: GroupAddress,
        on_news: Callable[[], None] = lambda: None,
        timeout: float = JOINING,
    ) -> Self:
        """Join the group of a deployment; `on_news` is called when there may be some."""
        peer = cls(on_news)
        handlers = {
            NEWS: lambda _: peer._on_news(),
            STATS: peer._note,
            DRAIN: lambda _: peer.drain_requested.set(),
            STOP: lambda _: peer.stop_requested.set(),
            FENCE: peer._follow,
        }
        group = Group.join(
            name, address=place.address, secret=place.secret, handlers=handlers, timeout=timeout
        )
        peer._joined.set_result(group)
        return peer

    @property
    def name(self) -> str:
        """Of this process."""
        return self.group.name

    @property
    def group(self) -> Group:
        """What it has joined."""
        return self._joined.result(JOINING)

    @property
    def stats(self) -> dict[str, Stats]:
        """What each of the others has said last of what it did."""
        with self._noting:
            return dict(self._stats)

    @property
    def is_replaced(self) -> bool:
        """Whether another process has taken this one's name."""
        try:
            self.group.wait_for((), 0.0)
        except GroupError as end:
            return isinstance(end, MemberReplaced)
        return False

    # --- saying ---

    def hint(self, topic: str, payload: bytes = b"") -> None:
        """Say something to all, if anybody can hear it."""
        try:
            self.group.publish(topic, payload)
        except GroupError as trouble:
            log.debug("nobody hears %s of %s: %s", topic, self.name, trouble)

    def tell_news(self) -> None:
        """Something was committed that others may wait for."""
        self.hint(NEWS)

    def publish_stats(self, stats: Stats) -> None:
        """What this process has done so far."""
        self.hint(STATS, msgspec.json.encode(stats))

    def order(self, member: str, topic: str) -> None:
        """Tell one of them to drain; `UnknownMember` if it is not here."""
        self.group.send(member, topic)

    def fence(self, name: str, bound: float = FENCE_BOUND) -> Completion:
        """Call everybody to a processing fence: what was said before is dealt with after it."""
        self.hint(FENCE, name.encode())
        return self.group.processing_fence(name, timeout=bound)

    # --- waiting for the others ---

    def wait_until_gone(self, name: str, timeout: float) -> Departure | None:
        """How a member went, if it does in time: what it said last, or that it said nothing."""
        if not self.wait(lambda: self.is_gone(name), timeout):
            return None
        last = self.stats.get(name)
        return Departure(last if last is not None and last.is_final else None)

    def wait_for_final_stats(self, names: set[str], timeout: float) -> bool:
        """Whether all of these say in time what they did, or are gone without a word."""

        def is_over() -> bool:
            final = {stats.name for stats in self.stats.values() if stats.is_final}
            return all(name in final or self.is_gone(name) for name in names)

        return self.wait(is_over, timeout)

    def is_gone(self, name: str) -> bool:
        """Whether somebody is not here; nobody can tell without a coordinator."""
        names = {member.name for member in self.members}
        return self.group.is_connected and self.name in names and name not in names

    @property
    def members(self) -> tuple[Member, ...]:
        """Who is here."""
        return self.group.members

    def leave(self) -> None:
        """Go in good order."""
        self.group.drain(timeout=5.0)

    def wait(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Whether something comes true in time."""
        until = monotonic() + timeout
        while not condition():
            if monotonic() > until:
                return False
            self._pause.wait(LOOK)
        return True

    # --- hearing ---

    def _note(self, message: Message) -> None:
        try:
            stats = msgspec.json.decode(message.payload, type=Stats)
        except msgspec.DecodeError as garbage:
            log.warning("%s says something else than stats: %s", message.sender, garbage)
            return
        with self._noting:
            self._stats[message.sender] = stats

    def _follow(self, message: Message) -> None:
        """Come to the fence that a colleague calls; its handler waits there like anybody."""
        name = message.payload.decode(errors="replace")
        try:
            completion = self.group.processing_fence(name, timeout=FENCE_BOUND)
        except GroupError as trouble:
            log.info("%s did not come to fence %r: %s", self.name, name, trouble)
            return
        if completion.rendezvous.failure is Failure.TIMEOUT:
            log.info("%s", completion)
