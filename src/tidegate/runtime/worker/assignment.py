"""Assigns tasks to workers: as evenly as possible, with as few moves as possible.

Every worker reads the registered workers, their capabilities and the present owners from the
database, and computes the same assignment of all tasks from them. Each worker carries out only its
own moves: it hands over surplus tasks and takes free ones. So the workers converge without
messages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

Capabilities = Mapping[str, Collection[str] | None]
"""By worker: the tasks that it can run; None for all."""


@dataclass(frozen=True, slots=True)
class Moves:
    """The tasks that one worker takes and hands over."""

    take: tuple[str, ...] = ()
    hand_over: tuple[str, ...] = ()


def decide(worker: str, able: Capabilities, holders: Mapping[str, str | None]) -> Moves:
    """The moves of one worker; `holders` has the present owner of every task.

    >>> decide("ann", {"ann": None, "ben": None}, {"t1": "ann", "t2": "ann", "t3": "ann"})
    Moves(take=(), hand_over=('t3',))
    """
    mine = [task for task, holder in sorted(holders.items()) if holder == worker]
    if worker not in able:
        return Moves(hand_over=tuple(mine))
    assigned = _assigned(able, holders)
    return Moves(
        take=tuple(task for task, to in sorted(assigned.items())
                   if to == worker and holders[task] is None),
        hand_over=tuple(task for task in mine if assigned.get(task) != worker),
    )  # fmt: skip


def unattended(able: Capabilities, tasks: Iterable[str]) -> tuple[str, ...]:
    """The tasks that no worker can run.

    >>> unattended({"ann": {"t1"}, "ben": {"t1", "t2"}}, ["t1", "t2", "t3"])
    ('t3',)
    """
    return tuple(
        task for task in tasks if not any(_can_run(known, task) for known in able.values())
    )


def _assigned(able: Capabilities, holders: Mapping[str, str | None]) -> dict[str, str]:
    """The worker of each task; tasks that no worker can run are missing."""
    can = {task: [name for name in sorted(able) if _can_run(able[name], task)] for task in holders}
    assigned = {
        task: holder
        for task, holder in sorted(holders.items())
        if holder is not None and (holder in can[task] or not can[task] or holder not in able)
    }
    load = {name: sum(to == name for to in assigned.values()) for name in able}
    left = [task for task in holders if task not in assigned and can[task]]
    for task in sorted(left, key=lambda task: (len(can[task]), task)):
        to = min(can[task], key=lambda name: (load[name], name))
        assigned[task] = to
        load[to] += 1
    while _move_one(assigned, load, can):
        pass
    return assigned


def _move_one(assigned: dict[str, str], load: dict[str, int], can: Mapping[str, list[str]]) -> bool:
    """Move a task from a worker to one that has at least two fewer, if there is one."""
    for giver in sorted(load, key=lambda name: (-load[name], name)):
        for task in sorted((task for task, to in assigned.items() if to == giver), reverse=True):
            taker = min(can[task], key=lambda name: (load[name], name), default=giver)
            if load[taker] + 1 < load[giver]:
                assigned[task] = taker
                load[giver] -= 1
                load[taker] += 1
                return True
    return False


def _can_run(tasks: Collection[str] | None, task: str) -> bool:
    return tasks is None or task in tasks
