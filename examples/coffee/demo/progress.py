"""How far a run of the demo is: the facts of the store in a few numbers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.store import LaneStatus, RunFacts


@dataclass(frozen=True, slots=True)
class Progress:
    """Of all tasks of a run those that are done with it, and the messages processed so far."""

    tasks: int
    done: int
    messages: int


@dataclass(frozen=True, slots=True)
class Released:
    """What the monitor has let through: tasks, and the messages declared to and processed by them.

    `tasks` of `of_tasks` have been released.
    """

    tasks: int
    of_tasks: int
    declared: int
    processed: int


def progress(facts: RunFacts) -> Progress:
    """How far a run is."""
    lanes_into: dict[str, list[LaneStatus]] = {}
    for lane in facts.lanes:
        lanes_into.setdefault(lane.to_task, []).append(lane)
    done = sum(all(lane.is_passed for lane in lanes) for lanes in lanes_into.values())
    return Progress(len(lanes_into), done, sum(_processed(lane) for lane in facts.lanes))


def released(facts: RunFacts, monitored: Collection[str]) -> Released:
    """What has passed the sharded aggregates of a run."""
    lanes = [lane for lane in facts.lanes if lane.to_task in monitored]
    return Released(
        len(facts.released.intersection(monitored)),
        len(monitored),
        sum(lane.declared or 0 for lane in lanes),
        sum(_processed(lane) for lane in lanes),
    )


def has_lost_its_owners(facts: RunFacts) -> bool:
    """Whether every lease of its tasks has run out with nobody to take it."""
    return bool(facts.owners) and all(it.expires_in < 0 for it in facts.owners.values())


def _processed(lane: LaneStatus) -> int:
    """Messages of a lane that have had their effect, END not counted."""
    return lane.cursor if lane.declared is None else min(lane.cursor, lane.declared)
