"""Status: what is known of runs, as values for those who explain it to people."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from graphlib import TopologicalSorter

import psycopg

from tidegate.store.core.queries import queries
from tidegate.store.core.topics import task_topic
from tidegate.store.runs.deliveries import look_for_gaps, numbers_in
from tidegate.store.runs.runs import Run


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One line about a run."""

    run: Run
    begun_at: datetime
    closed_at: datetime | None
    warn_at: datetime | None
    deadline_at: datetime | None
    delivered: int
    declared: int | None
    """Chunks, over the sources that have said how many there are."""
    sources: int
    declared_sources: int
    ended_sources: int
    results: int


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """A source of a run: what it has, what it is to have, which chunks it owes."""

    name: str
    delivered: int
    declared: int | None
    declared_at: datetime | None
    ended_at: datetime | None
    last_at: datetime
    """When its last chunk came, or the run was begun."""
    missing: tuple[int, ...]
    """The first few chunks that were declared and have not come."""
    watermark: int | None = None
    """Its latest event time less the allowed delay, in milliseconds since 1970, if it has one."""


@dataclass(frozen=True, slots=True)
class DeliveredChunk:
    """A chunk that is there, as whoever delivers the rest needs to know it."""

    number: int
    sha256: str
    rows: int


@dataclass(frozen=True, slots=True)
class ChannelStatus:
    """A channel of a run: how many messages were sent, declared, and have had their effect."""

    from_task: str
    to_task: str
    input: int
    sent: int
    declared: int | None
    """How many there are in all; None until END was sent."""
    cursor: int
    waiting_since: datetime | None
    gone: tuple[int, ...] = ()
    """The first few messages that were sent and are not there; there should never be any."""

    @property
    def messages(self) -> int:
        """How many were sent, without END."""
        return self.sent if self.declared is None else self.declared

    @property
    def is_passed(self) -> bool:
        """Whether its receiver is done with it, END included."""
        return self.declared is not None and self.cursor > self.declared


@dataclass(frozen=True, slots=True)
class Owner:
    """Who runs a task. `expires_in` is negative when the lease ran out and nobody took it."""

    name: str | None
    epoch: int
    expires_in: float


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Everything that tells how far a run has come."""

    run: Run
    now: datetime
    sources: tuple[SourceStatus, ...]
    channels: tuple[ChannelStatus, ...]
    released: frozenset[str]
    owners: dict[str, Owner]
    gates: frozenset[str] = frozenset()
    """The tasks at which END waits for the monitor."""
    monitor: Owner | None = None
    """Who releases there; None when nobody ever has."""


@dataclass(frozen=True, slots=True)
class StageStatus:
    """A stage of a run, all its shards together; messages without their ENDs."""

    stage: str
    expected: int
    is_all_declared: bool
    """Whether nothing can be added to what is expected."""
    received: int
    processed: int
    tasks: int
    done: int
    """Tasks that are done with the run."""
    gates: int
    """Tasks at which END waits for the monitor; at none in most stages."""
    released: int


def overview(
    connection: psycopg.Connection,
    pipeline: str | None = None,
    limit: int = 100,
    beginning: str = "",
) -> list[RunSummary]:
    """The latest runs; those whose names begin like this."""
    asked = {"pipeline": pipeline, "limit": limit, "beginning": beginning}
    rows = connection.execute(_SQL["overview"].sql, asked)
    return [RunSummary(Run.from_row(*row[:6]), *row[6:]) for row in rows]


def run_facts(connection: psycopg.Connection, run: Run) -> RunFacts:
    """All that is known of a run at this moment."""
    asked = {"run": run.id}
    sources = connection.execute(_SQL["sources_of"].sql, asked).fetchall()
    rows = connection.execute(_SQL["all_channels_of"].sql, asked)
    channels = [replace(ChannelStatus(*row), gone=tuple(gone or ())) for *row, gone in rows]
    released = connection.execute(_SQL["releases_of"].sql, asked).fetchall()
    (now,) = connection.execute(_SQL["now"].sql).fetchone() or (None,)
    assert isinstance(now, datetime)
    return RunFacts(
        run,
        now,
        tuple(_source(connection, run, *row) for row in sources),
        tuple(channels),
        frozenset(task for (task,) in released),
        owners(connection, run.pipeline, {channel.to_task for channel in channels}),
        frozenset(task for (task,) in connection.execute(_SQL["gates_of"].sql, asked)),
        _held_by(connection, "monitor", [run.pipeline]).get(run.pipeline),
    )


def delivered_chunks(
    connection: psycopg.Connection, run: Run, source: str, after: int = 0, limit: int = 1000
) -> list[DeliveredChunk]:
    """The first chunks of a source with numbers beyond `after`."""
    asked = {"run": run.id, "source": source, "after": after, "limit": limit}
    rows = connection.execute(_SQL["delivered_chunks"].sql, asked)
    return [DeliveredChunk(*row) for row in rows]


def record_gates(connection: psycopg.Connection, plan: str, tasks: Collection[str]) -> None:
    """Note at which tasks of a plan END waits for the monitor, for those who ask `run_facts`."""
    connection.execute(_SQL["record_gates"].sql, {"plan": plan, "tasks": list(tasks)})


def stages(facts: RunFacts) -> list[StageStatus]:
    """How far every stage is, in the order in which data goes through them."""
    channels: dict[str, list[ChannelStatus]] = {}
    for channel in facts.channels:
        channels.setdefault(_stage(channel.to_task), []).append(channel)
    before = {
        stage: sorted({_stage(channel.from_task) for channel in channels[stage]})
        for stage in sorted(channels)
    }
    order = TopologicalSorter(before).static_order()
    return [_of_stage(facts, stage, channels[stage]) for stage in order if stage in channels]


def _of_stage(facts: RunFacts, stage: str, channels: list[ChannelStatus]) -> StageStatus:
    tasks = {channel.to_task for channel in channels}
    unfinished = {channel.to_task for channel in channels if not channel.is_passed}
    return StageStatus(
        stage=stage,
        expected=sum(channel.declared or 0 for channel in channels),
        is_all_declared=all(channel.declared is not None for channel in channels),
        received=sum(channel.messages for channel in channels),
        processed=sum(min(channel.cursor, channel.messages) for channel in channels),
        tasks=len(tasks),
        done=len(tasks - unfinished),
        gates=len(tasks & facts.gates),
        released=len(tasks & facts.released),
    )


def _stage(task: str) -> str:
    return task.partition("/")[0]


def owners(
    connection: psycopg.Connection, pipeline: str, tasks: Collection[str]
) -> dict[str, Owner]:
    """Who runs each of these tasks, as far as anybody does."""
    keys = {task_topic(pipeline, task): task for task in tasks}
    return {keys[key]: owner for key, owner in _held_by(connection, "task", keys).items()}


def _held_by(connection: psycopg.Connection, kind: str, keys: Collection[str]) -> dict[str, Owner]:
    rows = connection.execute(_SQL["owners"].sql, {"kind": kind, "keys": list(keys)})
    return {key: Owner(owner, epoch, left) for key, owner, epoch, left in rows}


def _source(  # noqa: PLR0913, PLR0917  the columns of a row
    connection: psycopg.Connection,
    run: Run,
    name: str,
    delivered: int,
    declared: int | None,
    declared_at: datetime | None,
    ended_at: datetime | None,
    last_at: datetime,
    watermark: int | None,
) -> SourceStatus:
    missing: tuple[int, ...] = ()
    if ended_at is None:
        missing = numbers_in(look_for_gaps(connection, run, name, declared).fetchall())
    counts = (delivered, declared, declared_at, ended_at, last_at)
    return SourceStatus(name, *counts, missing, watermark)


_SQL = queries(__name__)
