"""Releases: the facts from which the monitor decides, and what it has decided.

A producer of a task is a channel into it. It has declared how many messages it sent by its END;
those at or below the channel's cursor were processed. Both are read from what is there, message by
message, and not from any counter: a fault would not be seen if the facts were made from the same
numbers as the declaration.
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
from tidegate.store.runs.runs import Run


@dataclass(frozen=True, slots=True)
class _Fed:
    """One channel into a task: what was declared on it and what was processed from it."""

    from_task: str
    input: int
    declared: int | None
    largest: int
    numbers: list[int] | None
    """None where they are all numbers up to the largest."""

    @property
    def processed(self) -> frozenset[int]:
        return frozenset(range(1, self.largest + 1) if self.numbers is None else self.numbers)


def gates_of(connection: psycopg.Connection, pipeline: str) -> list[str]:
    """The tasks at which open runs of a pipeline wait for their release, whatever their plan."""
    rows = connection.execute(_SQL["gates"].sql, {"pipeline": pipeline})
    return [task for (task,) in rows]


def unreleased(
    connection: psycopg.Connection, pipeline: str, tasks: Collection[str]
) -> list[tuple[Run, str, ShardFacts]]:
    """Open runs at those of the tasks whose producers have all declared, not released there yet."""
    asked = {"pipeline": pipeline, "tasks": list(tasks)}
    rows = connection.execute(_SQL["closed_producers"].sql, asked).fetchall()
    waiting = [(Run.from_row(*of_run), str(task)) for *of_run, task in rows]
    facts = _facts(connection, [(run.id, task) for run, task in waiting])
    return [(run, task, facts[run.id, task]) for run, task in waiting]


def facts_of(connection: psycopg.Connection, run: Run, task: str) -> ShardFacts:
    """The facts of one run at one task, whatever state they are in."""
    return _facts(connection, [(run.id, task)])[run.id, task]


def release(connection: psycopg.Connection, run: Run, task: str) -> bool:
    """Let the run's END through at a task; False when it was before, or the run is closed."""
    done = connection.execute(_SQL["release"].sql, {"run": run.id, "task": task}).rowcount == 1
    if done:
        notify(connection, [task_topic(run.pipeline, task)])
        crash_point("release.before_commit")
    return done


def released(connection: psycopg.Connection, task: str, runs: Collection[int]) -> set[int]:
    """Of which of these runs END is let through at a task."""
    asked = {"task": task, "runs": list(runs)}
    return {id for (id,) in connection.execute(_SQL["released"].sql, asked)}


def _facts(
    connection: psycopg.Connection, asked: Sequence[tuple[int, str]]
) -> dict[tuple[int, str], ShardFacts]:
    fed: dict[tuple[int, str], list[_Fed]] = defaultdict(list)
    if asked:
        runs, tasks = zip(*asked, strict=True)
        rows = connection.execute(_SQL["facts"].sql, {"runs": list(runs), "tasks": list(tasks)})
        for run, task, *channel in rows:
            fed[run, task].append(_Fed(*channel))
    return {each: _shard(fed[each]) for each in asked}


def _shard(channels: Iterable[_Fed]) -> ShardFacts:
    """A task that feeds another by several inputs is several producers."""
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
