"""Why a run is not done: what is missing, who owes it, and since when. Facts in, words out.

The answer follows the run from its sources: a source that owes chunks comes first, because
everything behind it has to wait. After that, a task is to blame when something is on its channels
and it has not moved; who only waits for others is not. Where a task has processed everything and
END waits to be released, it is the monitor who owes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from tidegate.errors import listed
from tidegate.runtime.task_graph import HEAD
from tidegate.store import RunState, run_facts

if TYPE_CHECKING:
    from tidegate.store import ChannelStatus, Database, Owner, RunFacts, RunInfo, SourceStatus


MOST = 4
"""Reasons that are told in one line."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that keeps a run open."""

    who: str
    """The source, the task or the monitor that has to act."""
    what: str
    """What it owes."""
    since: datetime | None
    owner: str = ""
    """Who runs the task or is the monitor, and whether they are alive."""

    def told(self, now: datetime) -> str:
        """As a sentence, without its full stop."""
        for_long = f" for {_seconds(now, self.since)}" if self.since else ""
        return f"{self.who} {self.what}{for_long}" + (f" ({self.owner})" if self.owner else "")


def reasons(facts: RunFacts) -> tuple[Reason, ...]:
    """Everything that keeps a run open; nothing for one that is closed."""
    if facts.run.state is not RunState.OPEN:
        return ()
    return (*_of_sources(facts), *_of_tasks(facts))


def why(facts: RunFacts) -> str:
    """The first reasons in one line."""
    found = [reason.told(facts.now) for reason in reasons(facts)]
    if not found:
        return f"run {facts.run.name!r} is {facts.run.state.value}"
    more = len(found) - MOST
    return "waiting: " + "; ".join(found[:MOST]) + (f"; and {more} more" if more > 0 else "")


def why_not_done(database: Database, run: RunInfo) -> str:
    """Look, and say why a run is not done."""
    return why(database.transact(lambda connection: run_facts(connection, run)))


def _of_sources(facts: RunFacts) -> Iterator[Reason]:
    for source in facts.sources:
        if source.ended_at is None:
            yield Reason(
                f"source {source.name}", _owed(source), source.declared_at or source.last_at
            )


def _owed(source: SourceStatus) -> str:
    if source.declared is None:
        gaps = f", missing so far {_numbers(source.missing)}" if source.missing else ""
        return f"has not been closed by its client ({source.delivered} chunks so far{gaps})"
    short = source.declared - source.delivered
    return f"owes {short} of {source.declared} chunks: {_numbers(source.missing)}"


def _of_tasks(facts: RunFacts) -> Iterator[Reason]:
    for task in dict.fromkeys(channel.to_task for channel in facts.channels):
        channels = [channel for channel in facts.channels if channel.to_task == task]
        waiting = [channel for channel in channels if channel.sent > channel.cursor]
        if not waiting or not _can_act(facts, task, channels):
            continue
        if _needs_release(facts, task, channels):
            yield _of_monitor(facts, task, waiting)
        else:
            yield _of_task(facts, task, waiting)


def _of_task(facts: RunFacts, task: str, waiting: list[ChannelStatus]) -> Reason:
    what = f"has not processed {listed([_left(channel) for channel in waiting], most=2)}"
    return Reason(f"task {task}", what, min(_times(waiting), default=None), _owned(facts, task))


def _needs_release(facts: RunFacts, task: str, channels: list[ChannelStatus]) -> bool:
    """Whether only END is left, at a task where the monitor lets it pass and has not."""
    is_held = task in facts.release_points and task not in facts.released
    return is_held and all(channel.cursor == channel.declared for channel in channels)


def _of_monitor(facts: RunFacts, task: str, waiting: list[ChannelStatus]) -> Reason:
    """It could not have released before the last of the ENDs was there."""
    ends = listed([_left(channel) for channel in waiting], most=2)
    what = f"has not released task {task} to pass on {ends}"
    return Reason("the monitor", what, max(_times(waiting), default=None), _watched(facts))


def _times(channels: list[ChannelStatus]) -> list[datetime]:
    return [channel.waiting_since for channel in channels if channel.waiting_since]


def _can_act(facts: RunFacts, task: str, channels: list[ChannelStatus]) -> bool:
    """Whether something on its channels is for it to do now: not just ENDs that wait for others."""
    if all(channel.declared is not None for channel in channels):
        return True
    return any(
        channel.cursor < channel.messages and not _keeps(facts, task) for channel in channels
    )


def _keeps(facts: RunFacts, task: str) -> bool:
    """Whether the task keeps what it gets until END, so that its cursor says nothing before."""
    arriving = {channel.from_task for channel in facts.channels if channel.to_task == task}
    return HEAD not in arriving and len(arriving) == 1


def _left(channel: ChannelStatus) -> str:
    """What waits on a channel: data, the END behind it, or END alone."""
    first, last = channel.cursor + 1, channel.messages
    end = "" if channel.declared is None else " and END" if first <= last else "END"
    gone = f", whose message {_numbers(channel.lost)} is gone" if channel.lost else ""
    return f"{_messages(first, last)}{end} from {channel.from_task}{gone}"


def _messages(first: int, last: int) -> str:
    """Those with these numbers, if there are any.

    >>> _messages(3, 5), _messages(5, 5), _messages(6, 5)
    ('messages 3 to 5', 'message 5 of 5', '')
    """
    if first > last:
        return ""
    return f"message {last} of {last}" if first == last else f"messages {first} to {last}"


def _owned(facts: RunFacts, task: str) -> str:
    return _held(facts.owners.get(task), "nobody runs it", "worker ")


def _watched(facts: RunFacts) -> str:
    return _held(facts.monitor, "nobody is the monitor", "holder ")


def _held(owner: Owner | None, nobody: str, who: str) -> str:
    if owner is None or owner.name is None:
        return nobody
    if owner.expires_in < 0:
        return f"{who}{owner.name} lost it {-owner.expires_in:.1f} s ago and nobody has taken it"
    return f"{who}{owner.name}"


def _numbers(numbers: tuple[int, ...]) -> str:
    return listed([str(number) for number in numbers], most=10)


def _seconds(now: datetime, since: datetime) -> str:
    return f"{max(0.0, (now - since).total_seconds()):.1f} s"
