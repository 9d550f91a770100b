"""The progress of a run of the demo, computed from its status."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import tidegate as tg


@dataclass(frozen=True, slots=True)
class Progress:
    """Tasks of a run, those that have completed it, and the messages processed so far."""

    tasks: int
    done: int
    messages: int


@dataclass(frozen=True, slots=True)
class Released:
    """Released tasks (`tasks` of `of_tasks`), and their declared and processed messages."""

    tasks: int
    of_tasks: int
    declared: int
    processed: int


def progress(facts: tg.RunFacts) -> Progress:
    """The progress of a run."""
    is_passed: dict[str, bool] = defaultdict(lambda: True)
    for channel in facts.channels:
        is_passed[channel.to_task] &= channel.is_passed
    processed = sum(channel.processed for channel in facts.channels)
    return Progress(len(is_passed), sum(is_passed.values()), processed)


def released(facts: tg.RunFacts) -> Released:
    """The releases of the sharded aggregates of a run."""
    channels = [each for each in facts.channels if each.to_task in facts.release_points]
    return Released(
        len(facts.released & facts.release_points),
        len(facts.release_points),
        sum(channel.declared or 0 for channel in channels),
        sum(channel.processed for channel in channels),
    )


def have_leases_expired(facts: tg.RunFacts) -> bool:
    """Whether the leases of all tasks of a run have expired."""
    return bool(facts.owners) and all(owner.expires_in < 0 for owner in facts.owners.values())
