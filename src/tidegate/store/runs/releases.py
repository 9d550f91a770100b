"""Releases: the facts for the monitor's decisions, and the decisions.

A producer of a task is a channel into it. Its END declares how many messages it sent; messages up
to the channel's cursor were processed. Processed messages are counted from the message rows and not
from a counter: a fault would go unnoticed if facts and declaration came from the same number.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import psycopg

from tidegate.completion import Producer, ShardFacts
from tidegate.faults import crash_point
from tidegate.store.core.notifications import notify
from tidegate.store.core.queries import queries
from tidegate.store.core.topics import task_topic
from tidegate.store.runs.runs import RunInfo


@dataclass(frozen=True, slots=True)
class _ChannelFacts:
    """The declared and processed messages of one channel into a task."""

    from_task: str
    input: int
    declared: int | None
    largest: int
    numbers: list[int] | None
    """None where all numbers up to the largest are present."""

    @property
    def processed(self) -> frozenset[int]:
        return frozenset(range(1, self.largest + 1) if self.numbers is None else self.numbers)


def release_points_of(connection: psycopg.Connection, pipeline: str) -> list[str]:
    """The release points of all open runs of a pipeline, under any plan."""
    rows = connection.execute(_SQL["release_points"].sql, {"pipeline": pipeline})
    return [task for (task,) in rows]


def unreleased(
    connection: psycopg.Connection, pipeline: str, tasks: Collection[str]
) -> list[tuple[RunInfo, str, ShardFacts]]:
    """Unreleased open runs at those tasks where all producers have declared, with their facts."""
    parameters = {"pipeline": pipeline, "tasks": list(tasks)}
    rows = connection.execute(_SQL["closed_producers"].sql, parameters).fetchall()
    waiting = [(RunInfo.from_row(*columns), str(task)) for *columns, task in rows]
    facts = _facts(connection, [(run.id, task) for run, task in waiting])
    return [(run, task, facts[run.id, task]) for run, task in waiting]


def facts_of(connection: psycopg.Connection, run: RunInfo, task: str) -> ShardFacts:
    """The facts of one run at one task."""
    return _facts(connection, [(run.id, task)])[run.id, task]


def release(connection: psycopg.Connection, run: RunInfo, task: str) -> bool:
    """Release the run's END at a task; False when it was released before or the run is closed."""
    is_new = connection.execute(_SQL["release"].sql, {"run": run.id, "task": task}).rowcount == 1
    if is_new:
        notify(connection, [task_topic(run.pipeline, task)])
        crash_point("release.before_commit")
    return is_new


def released(connection: psycopg.Connection, task: str, runs: Collection[int]) -> set[int]:
    """The runs that are released at a task."""
    parameters = {"task": task, "runs": list(runs)}
    return {id for (id,) in connection.execute(_SQL["released"].sql, parameters)}


def _facts(
    connection: psycopg.Connection, parameters: Sequence[tuple[int, str]]
) -> dict[tuple[int, str], ShardFacts]:
    channels: dict[tuple[int, str], list[_ChannelFacts]] = defaultdict(list)
    if parameters:
        runs, tasks = zip(*parameters, strict=True)
        rows = connection.execute(_SQL["facts"].sql, {"runs": list(runs), "tasks": list(tasks)})
        for run, task, *channel in rows:
            channels[run, task].append(_ChannelFacts(*channel))
    return {each: _shard(channels[each]) for each in parameters}


def _shard(channels: Iterable[_ChannelFacts]) -> ShardFacts:
    """A task that feeds another one through several inputs counts as several producers."""
    channels = list(channels)
    times = Counter(channel.from_task for channel in channels)
    named = {
        channel.from_task
        if times[channel.from_task] == 1
        else f"{channel.from_task} ({channel.input})": channel
        for channel in channels
    }
    return ShardFacts(
        tuple(Producer(name, channel.declared) for name, channel in named.items()),
        {name: channel.processed for name, channel in named.items()},
    )


_SQL = queries(__name__)
