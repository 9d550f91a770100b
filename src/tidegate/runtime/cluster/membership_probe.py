"""Inspects the group of a deployment: whether a name is in use, and which members are workers.

The inspecting process joins as a temporary member under a unique name. It takes part in fences and
leaves orderly, so it delays no other member.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from uuid import uuid4

from tidegate.errors import NameTaken, NotAWorker
from tidegate.group import Member
from tidegate.runtime.cluster.discovery import GroupAddress
from tidegate.runtime.cluster.peer import GroupPeer, Stats
from tidegate.runtime.cluster.roles import STATS_EVERY, WORKER

JOIN_BOUND = 2.0
"""Seconds to find the coordinator."""
DEPARTURE_BOUND = 2.0
"""Seconds for which a process that was killed may still be listed as a member."""
STATS_BOUND = 2 * STATS_EVERY
"""Seconds within which every process has published its stats."""


@contextmanager
def temporary_member(address: GroupAddress, purpose: str = "visitor") -> Iterator[GroupPeer]:
    """A member of the group until the end of the block."""
    peer = GroupPeer.join(f"{purpose}-{uuid4().hex[:12]}", address, timeout=JOIN_BOUND)
    try:
        yield peer
    finally:
        peer.leave()


def refuse_used_name(address: GroupAddress, name: str) -> None:
    """Raise `NameTaken` if a running process has this name.

    A process that joins under a name replaces the member of that name. This is right for a
    restarted process: its predecessor is no longer in the group.
    """
    with temporary_member(address) as peer:
        if peer.wait_until_gone(name, DEPARTURE_BOUND) is None and (member := _member(peer, name)):
            raise NameTaken(name, member.pid, member.host)


def require_worker(peer: GroupPeer, name: str) -> None:
    """Raise `NotAWorker`, which lists the workers, unless this member is one."""
    until = monotonic() + STATS_BOUND
    peer.wait(lambda: name in peer.stats or peer.is_gone(name), STATS_BOUND)
    stats = peer.stats.get(name)
    if stats is None or stats.role != WORKER:
        reason = _why_not_a_worker(name, stats, is_here=not peer.is_gone(name))
        raise NotAWorker(name, reason, _workers(peer, until))


def _member(peer: GroupPeer, name: str) -> Member | None:
    return next((member for member in peer.members if member.name == name), None)


def _why_not_a_worker(name: str, stats: Stats | None, *, is_here: bool) -> str:
    if not is_here:
        return f"there is no {name}"
    role = f"a {stats.role}" if stats is not None else "no worker"
    return f"{name} is {role}, and only workers are drained"


def _workers(peer: GroupPeer, until: float) -> str:
    """The names of all workers that have published stats by then."""

    def has_stats_of_all() -> bool:
        return {member.name for member in peer.members} - {peer.name} <= set(peer.stats)

    peer.wait(has_stats_of_all, until - monotonic())
    workers = sorted(stats.name for stats in peer.stats.values() if stats.role == WORKER)
    return ", ".join(workers) or "none"
