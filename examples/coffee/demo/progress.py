"""How far a run of the demo is: the facts of the store in a few numbers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.store import ChannelStatus, RunFacts


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
    channels_into: dict[str, list[ChannelStatus]] = {}
    for channel in facts.channels:
        channels_into.setdefault(channel.to_task, []).append(channel)
    done = sum(
        all(channel.is_passed for channel in channels) for channels in channels_into.values()
    )
    return Progress(
        len(channels_into), done, sum(_processed(channel) for channel in facts.channels)
    )


def released(facts: RunFacts, monitored: Collection[str]) -> Released:
    """What has passed the sharded aggregates of a run."""
    channels = [channel for channel in facts.channels if channel.to_task in monitored]
    return Released(
        len(facts.released.intersection(monitored)),
        len(monitored),
        sum(channel.declared or 0 for channel in channels),
        sum(_processed(channel) for channel in channels),
    )


def has_lost_its_owners(facts: RunFacts) -> bool:
    """Whether every lease of its tasks has run out with nobody to take it."""
    return bool(facts.owners) and all(it.expires_in < 0 for it in facts.owners.values())


def _processed(channel: ChannelStatus) -> int:
    """Messages of a channel that have had their effect, END not counted."""
    return channel.cursor if channel.declared is None else min(channel.cursor, channel.declared)
