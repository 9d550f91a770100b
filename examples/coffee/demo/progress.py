"""The progress of a run of the demo, computed from the facts of the store."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.store import ChannelStatus, RunFacts


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


def progress(facts: RunFacts) -> Progress:
    """The progress of a run."""
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
    """The releases of the sharded aggregates of a run."""
    channels = [channel for channel in facts.channels if channel.to_task in monitored]
    return Released(
        len(facts.released.intersection(monitored)),
        len(monitored),
        sum(channel.declared or 0 for channel in channels),
        sum(_processed(channel) for channel in channels),
    )


def have_leases_expired(facts: RunFacts) -> bool:
    """Whether the leases of all tasks of a run have expired."""
    return bool(facts.owners) and all(owner.expires_in < 0 for owner in facts.owners.values())


def _processed(channel: ChannelStatus) -> int:
    """Processed messages of a channel, without END."""
    return channel.cursor if channel.declared is None else min(channel.cursor, channel.declared)
