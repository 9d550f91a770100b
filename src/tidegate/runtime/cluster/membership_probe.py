"""Looking in on the group of a deployment: whether a name is free there, and who is a worker.

A visitor is a member for a moment, under a name that nobody else has. It comes to the others'
fences and goes in good order, so nobody is held up by it.
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

ARRIVING = 2.0
"""Seconds for which a visitor looks for the coordinator."""
GOING = 2.0
"""Seconds in which one that has just died may still seem to be here."""
SAYING = 2 * STATS_EVERY
"""Seconds within which everybody at a post says what it does."""


@contextmanager
def temporary_member(place: GroupAddress, why: str = "visitor") -> Iterator[GroupPeer]:
    """Be in a group until the end of the block."""
    visitor = GroupPeer.join(f"{why}-{uuid4().hex[:12]}", place, timeout=ARRIVING)
    try:
        yield visitor
    finally:
        visitor.leave()


def refuse_used_name(place: GroupAddress, name: str) -> None:
    """Raise `NameTaken` if somebody who lives has this name.

    Whoever joins under a name takes it over, which is right for one that is started again after
    its death: that is gone from the group by then.
    """
    with temporary_member(place) as visitor:
        if visitor.wait_until_gone(name, GOING) is None and (there := _member(visitor, name)):
            raise NameTaken(name, there.pid, there.host)


def require_worker(visitor: GroupPeer, name: str) -> None:
    """Raise `NotAWorker` unless one of this name is at work, and say who is."""
    until = monotonic() + SAYING
    visitor.wait(lambda: name in visitor.stats or visitor.is_gone(name), SAYING)
    its = visitor.stats.get(name)
    if its is None or its.role != WORKER:
        what = _what_it_is(name, its, is_here=not visitor.is_gone(name))
        raise NotAWorker(name, what, _workers(visitor, until))


def _member(visitor: GroupPeer, name: str) -> Member | None:
    return next((it for it in visitor.members if it.name == name), None)


def _what_it_is(name: str, its: Stats | None, *, is_here: bool) -> str:
    if not is_here:
        return f"there is no {name}"
    role = f"a {its.role}" if its is not None else "no worker"
    return f"{name} is {role}, and only workers are drained"


def _workers(visitor: GroupPeer, until: float) -> str:
    """All of them: each has said what it is, or has had the time to."""

    def have_all_spoken() -> bool:
        return {it.name for it in visitor.members} - {visitor.name} <= set(visitor.stats)

    visitor.wait(have_all_spoken, until - monotonic())
    workers = sorted(it.name for it in visitor.stats.values() if it.role == WORKER)
    return ", ".join(workers) or "nobody"
