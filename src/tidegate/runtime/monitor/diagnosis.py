"""Explains why a run is not done: what is missing, which part has to act, and since when.

The reasons follow the run from its sources. Sources with missing chunks come first, because
everything downstream waits for them. A task is a reason if messages are on its channels and it has
not processed them, but not if it only waits for others. If a task has processed everything and END
waits for its release, the monitor is the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from tidegate.errors import counted, listed
from tidegate.runtime.task_graph import HEAD
from tidegate.store import RunState, run_facts

if TYPE_CHECKING:
    from tidegate.store import ChannelStatus, Database, Owner, RunFacts, RunInfo, SourceStatus


MOST = 4
"""Reasons that are shown in one line."""


@dataclass(frozen=True, slots=True)
class WaitReason:
    """One cause that keeps a run open."""

    subject: str
    """The source, the task or the monitor that has to act."""
    description: str
    """What it has not done."""
    since: datetime | None
    owner: str = ""
    """The owner of the task or of the monitor, and whether its lease has expired."""

    def render(self, now: datetime) -> str:
        """As a sentence, without its full stop."""
        duration = f" for {_seconds(now, self.since)}" if self.since else ""
        owner = f" ({self.owner})" if self.owner else ""
        return f"{self.subject} {self.description}{duration}{owner}"


def reasons(facts: RunFacts) -> tuple[WaitReason, ...]:
    """Everything that keeps a run open; empty for a closed run."""
    if facts.run.state is not RunState.OPEN:
        return ()
    return (*_of_sources(facts), *_of_tasks(facts))


def why(facts: RunFacts) -> str:
    """The first reasons in one line."""
    found = [reason.render(facts.now) for reason in reasons(facts)]
    if not found:
        return f"run {facts.run.name!r} is {facts.run.state.value}"
    more = len(found) - MOST
    return "waiting: " + "; ".join(found[:MOST]) + (f"; and {more} more" if more > 0 else "")


def why_not_done(database: Database, run: RunInfo) -> str:
    """Read the facts of a run, and explain why it is not done."""
    return why(database.transact(lambda connection: run_facts(connection, run)))


def _of_sources(facts: RunFacts) -> Iterator[WaitReason]:
    for source in facts.sources:
        if source.ended_at is None:
            yield WaitReason(
                f"source {source.name}", _missing(source), source.declared_at or source.last_at
            )


def _missing(source: SourceStatus) -> str:
    if source.declared is None:
        gaps = f", missing so far {_numbers(source.missing)}" if source.missing else ""
        return f"is not ended ({counted(source.delivered, 'chunk')} so far{gaps})"
    short = source.declared - source.delivered
    return f"lacks {short} of {source.declared} chunks: {_numbers(source.missing)}"


def _of_tasks(facts: RunFacts) -> Iterator[WaitReason]:
    for task in dict.fromkeys(channel.to_task for channel in facts.channels):
        channels = [channel for channel in facts.channels if channel.to_task == task]
        waiting = [channel for channel in channels if channel.sent > channel.cursor]
        if not waiting or not _can_act(facts, task, channels):
            continue
        if _needs_release(facts, task, channels):
            yield _of_monitor(facts, task, waiting)
        else:
            yield _of_task(facts, task, waiting)


def _of_task(facts: RunFacts, task: str, waiting: list[ChannelStatus]) -> WaitReason:
    what = f"has not processed {listed([_left(channel) for channel in waiting], most=2)}"
    return WaitReason(
        f"task {task}", what, min(_times(waiting), default=None), _worker_of(facts, task)
    )


def _needs_release(facts: RunFacts, task: str, channels: list[ChannelStatus]) -> bool:
    """Whether only END is left, and the monitor has not released it."""
    is_held = task in facts.release_points and task not in facts.released
    return is_held and all(channel.cursor == channel.declared for channel in channels)


def _of_monitor(facts: RunFacts, task: str, waiting: list[ChannelStatus]) -> WaitReason:
    """The monitor is due since the last END arrived."""
    ends = listed([_left(channel) for channel in waiting], most=2)
    what = f"has not released task {task} to pass on {ends}"
    return WaitReason("the monitor", what, max(_times(waiting), default=None), _monitor_of(facts))


def _times(channels: list[ChannelStatus]) -> list[datetime]:
    return [channel.waiting_since for channel in channels if channel.waiting_since]


def _can_act(facts: RunFacts, task: str, channels: list[ChannelStatus]) -> bool:
    """Whether a task can process something now; not if an END waits for other inputs."""
    if all(channel.declared is not None for channel in channels):
        return True
    return any(
        channel.cursor < channel.messages and not _buffers(facts, task) for channel in channels
    )


def _buffers(facts: RunFacts, task: str) -> bool:
    """Whether the task buffers its input until END, so that its cursor does not move before."""
    arriving = {channel.from_task for channel in facts.channels if channel.to_task == task}
    return HEAD not in arriving and len(arriving) == 1


def _left(channel: ChannelStatus) -> str:
    """What is unprocessed on a channel: data, data and END, or END alone."""
    first, last = channel.cursor + 1, channel.messages
    end = "" if channel.declared is None else " and END" if first <= last else "END"
    gone = f"; message {_numbers(channel.lost)} is lost" if channel.lost else ""
    return f"{_messages(first, last)}{end} from {channel.from_task}{gone}"


def _messages(first: int, last: int) -> str:
    """Messages with these numbers; empty if there are none.

    >>> _messages(3, 5), _messages(5, 5), _messages(6, 5)
    ('messages 3 to 5', 'message 5 of 5', '')
    """
    if first > last:
        return ""
    return f"message {last} of {last}" if first == last else f"messages {first} to {last}"


def _worker_of(facts: RunFacts, task: str) -> str:
    return _owner(facts.owners.get(task), "no worker runs it", "worker ")


def _monitor_of(facts: RunFacts) -> str:
    return _owner(facts.monitor, "no monitor runs", "holder ")


def _owner(owner: Owner | None, unowned: str, role: str) -> str:
    if owner is None or owner.name is None:
        return unowned
    if owner.expires_in < 0:
        expired = f"{-owner.expires_in:.1f} s ago"
        return f"the lease of {role}{owner.name} expired {expired} and was not taken over"
    return f"{role}{owner.name}"


def _numbers(numbers: tuple[int, ...]) -> str:
    return listed([str(number) for number in numbers], most=10)


def _seconds(now: datetime, since: datetime) -> str:
    return f"{max(0.0, (now - since).total_seconds()):.1f} s"
