"""How many tasks each worker has: as even as possible, with as few moves as possible.

Every worker looks at who is here and who has what, and moves its own tasks only: it hands over what
it has too many of and takes what nobody has. All see the same facts and follow the same rule, so
they come to rest without having talked to each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Moves:
    """What one worker is to do."""

    take: tuple[str, ...] = ()
    hand_over: tuple[str, ...] = ()


def quota(worker: str, workers: Iterable[str], held: Mapping[str, int], tasks: int) -> int:
    """How many tasks a worker should have.

    Where they cannot be even, those who have most keep one more: nothing moves for nothing.

    >>> [quota(name, "abc", {"c": 5}, 5) for name in "abc"]
    [2, 1, 2]
    """
    order = sorted(workers, key=lambda name: (-held.get(name, 0), name))
    each, more = divmod(tasks, len(order))
    return each + (order.index(worker) < more)


def decide(worker: str, workers: Sequence[str], holders: Mapping[str, str | None]) -> Moves:
    """The moves of one worker; `holders` has every task, with whoever holds it."""
    mine = sorted(task for task, holder in holders.items() if holder == worker)
    if worker not in workers:
        return Moves(hand_over=tuple(mine))
    held = Counter(holder for holder in holders.values() if holder in workers and holder)
    enough = quota(worker, workers, held, len(holders))
    free = sorted(task for task, holder in holders.items() if holder is None)
    return Moves(
        take=tuple(free[: max(0, enough - len(mine))]),
        hand_over=tuple(mine[enough:]),
    )
