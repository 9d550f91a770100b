"""How many tasks each worker has: as even as possible, with as few moves as possible.

Every worker looks at who is here, what each is able to run and who has what, and works out for all
of them who should have what. All see the same facts and follow the same rule, so they come to rest
without having talked to each other; each carries out its own part only, hands over what it has too
many of and takes what nobody has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

Able = Mapping[str, Collection[str] | None]
"""By worker the tasks that it runs; None for all."""


@dataclass(frozen=True, slots=True)
class Moves:
    """What one worker is to do."""

    take: tuple[str, ...] = ()
    hand_over: tuple[str, ...] = ()


def decide(worker: str, able: Able, holders: Mapping[str, str | None]) -> Moves:
    """The moves of one worker; `holders` has every task, with whoever holds it.

    >>> decide("ann", {"ann": None, "ben": None}, {"t1": "ann", "t2": "ann", "t3": "ann"})
    Moves(take=(), hand_over=('t3',))
    """
    mine = [task for task, holder in sorted(holders.items()) if holder == worker]
    if worker not in able:
        return Moves(hand_over=tuple(mine))
    wanted = _assigned(able, holders)
    return Moves(
        take=tuple(task for task, to in sorted(wanted.items())
                   if to == worker and holders[task] is None),
        hand_over=tuple(task for task in mine if wanted.get(task) != worker),
    )  # fmt: skip


def unattended(able: Able, tasks: Iterable[str]) -> tuple[str, ...]:
    """The tasks that nobody here is able to run.

    >>> unattended({"ann": {"t1"}, "ben": {"t1", "t2"}}, ["t1", "t2", "t3"])
    ('t3',)
    """
    return tuple(it for it in tasks if not any(_is_able(its, it) for its in able.values()))


def _assigned(able: Able, holders: Mapping[str, str | None]) -> dict[str, str]:
    """Who should have which task; those that nobody here is able to run are missing."""
    can = {task: [name for name in sorted(able) if _is_able(able[name], task)] for task in holders}
    wanted = {
        task: holder
        for task, holder in sorted(holders.items())
        if holder is not None and (holder in can[task] or not can[task] or holder not in able)
    }
    load = {name: sum(to == name for to in wanted.values()) for name in able}
    left = [task for task in holders if task not in wanted and can[task]]
    for task in sorted(left, key=lambda task: (len(can[task]), task)):
        to = min(can[task], key=lambda name: (load[name], name))
        wanted[task] = to
        load[to] += 1
    while _move_one(wanted, load, can):
        pass
    return wanted


def _move_one(wanted: dict[str, str], load: dict[str, int], can: Mapping[str, list[str]]) -> bool:
    """Move a task from somebody to somebody who has at least two fewer, if there is one."""
    for giver in sorted(load, key=lambda name: (-load[name], name)):
        for task in sorted((it for it, to in wanted.items() if to == giver), reverse=True):
            taker = min(can[task], key=lambda name: (load[name], name), default=giver)
            if load[taker] + 1 < load[giver]:
                wanted[task] = taker
                load[giver] -= 1
                load[taker] += 1
                return True
    return False


def _is_able(tasks: Collection[str] | None, task: str) -> bool:
    return tasks is None or task in tasks
