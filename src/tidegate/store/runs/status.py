"""Status of runs: the facts that diagnosis, CLI and HTTP present."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from graphlib import TopologicalSorter

import psycopg

from tidegate.store.core.queries import queries
from tidegate.store.core.topics import task_topic
from tidegate.store.runs.deliveries import numbers_in, select_gaps
from tidegate.store.runs.runs import RunInfo


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A summary of a run."""

    run: RunInfo
    begun_at: datetime
    closed_at: datetime | None
    warn_at: datetime | None
    deadline_at: datetime | None
    delivered: int
    declared: int | None
    """Chunks expected, over the sources that have declared them."""
    sources: int
    declared_sources: int
    ended_sources: int
    results: int


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """A source of a run: delivered, declared and missing chunks."""

    name: str
    delivered: int
    declared: int | None
    declared_at: datetime | None
    ended_at: datetime | None
    last_at: datetime
    """When its last chunk was delivered, or the run was started."""
    missing: tuple[int, ...]
    """The first few missing chunks."""
    watermark: int | None = None
    """Latest event time less the allowed delay, in milliseconds since 1970, if there is any."""


@dataclass(frozen=True, slots=True)
class DeliveredChunk:
    """A delivered chunk, as a client that resumes a delivery needs it."""

    number: int
    sha256: str
    rows: int


@dataclass(frozen=True, slots=True)
class ChannelStatus:
    """A channel of a run: sent, declared and processed messages."""

    from_task: str
    to_task: str
    input: int
    sent: int
    declared: int | None
    """Total number of messages; None until END is sent."""
    cursor: int
    waiting_since: datetime | None
    lost: tuple[int, ...] = ()
    """The first few sent messages that are missing; always empty unless data was lost."""

    @property
    def messages(self) -> int:
        """Number of messages sent, without END."""
        return self.sent if self.declared is None else self.declared

    @property
    def processed(self) -> int:
        """Number of messages processed, without END."""
        return self.cursor if self.declared is None else min(self.cursor, self.declared)

    @property
    def is_passed(self) -> bool:
        """Whether the receiver has processed everything, END included."""
        return self.declared is not None and self.cursor > self.declared


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a lease. `expires_in` is negative when it expired and was not acquired since."""

    name: str | None
    epoch: int
    expires_in: float


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The progress of a run, as facts."""

    run: RunInfo
    now: datetime
    sources: tuple[SourceStatus, ...]
    channels: tuple[ChannelStatus, ...]
    released: frozenset[str]
    owners: dict[str, Owner]
    release_points: frozenset[str] = frozenset()
    """The tasks at which END waits for the monitor."""
    monitor: Owner | None = None
    """The owner of the monitor's lease; None before the first one."""


@dataclass(frozen=True, slots=True)
class StageStatus:
    """A stage of a run, all shards together; messages without END."""

    stage: str
    expected: int
    is_all_declared: bool
    """Whether `expected` is final."""
    received: int
    processed: int
    tasks: int
    done: int
    """Tasks that have processed everything of the run."""
    release_points: int
    """Tasks at which END waits for the monitor; none in most stages."""
    released: int


def overview(
    connection: psycopg.Connection,
    pipeline: str | None = None,
    limit: int = 100,
    prefix: str = "",
) -> list[RunSummary]:
    """The latest runs, optionally of one pipeline or with names that have a prefix."""
    parameters = {"pipeline": pipeline, "limit": limit, "prefix": prefix}
    rows = connection.execute(_SQL["overview"].sql, parameters)
    return [RunSummary(RunInfo.from_row(*row[:6]), *row[6:]) for row in rows]


def run_facts(connection: psycopg.Connection, run: RunInfo) -> RunFacts:
    """The progress of a run."""
    parameters = {"run": run.id}
    sources = connection.execute(_SQL["sources_of"].sql, parameters).fetchall()
    rows = connection.execute(_SQL["all_channels_of"].sql, parameters)
    channels = [replace(ChannelStatus(*row), lost=tuple(lost or ())) for *row, lost in rows]
    released = connection.execute(_SQL["releases_of"].sql, parameters).fetchall()
    release_points = connection.execute(_SQL["release_points_of"].sql, parameters).fetchall()
    (now,) = connection.execute(_SQL["now"].sql).fetchone() or (None,)
    assert isinstance(now, datetime)
    return RunFacts(
        run,
        now,
        tuple(_source(connection, run, *row) for row in sources),
        tuple(channels),
        frozenset(task for (task,) in released),
        owners(connection, run.pipeline, {channel.to_task for channel in channels}),
        frozenset(task for (task,) in release_points),
        _lease_owners(connection, "monitor", [run.pipeline]).get(run.pipeline),
    )


def delivered_chunks(
    connection: psycopg.Connection, run: RunInfo, source: str, after: int = 0, limit: int = 1000
) -> list[DeliveredChunk]:
    """The first delivered chunks of a source with numbers greater than `after`."""
    parameters = {"run": run.id, "source": source, "after": after, "limit": limit}
    rows = connection.execute(_SQL["delivered_chunks"].sql, parameters)
    return [DeliveredChunk(*row) for row in rows]


def record_release_points(
    connection: psycopg.Connection, plan: str, tasks: Collection[str]
) -> None:
    """Record the tasks of a plan at which END waits for the monitor."""
    connection.execute(_SQL["record_release_points"].sql, {"plan": plan, "tasks": list(tasks)})


def stages(facts: RunFacts) -> list[StageStatus]:
    """The progress of every stage, in the order of the data flow."""
    channels: dict[str, list[ChannelStatus]] = {}
    for channel in facts.channels:
        channels.setdefault(_stage(channel.to_task), []).append(channel)
    before = {
        stage: sorted({_stage(channel.from_task) for channel in channels[stage]})
        for stage in sorted(channels)
    }
    order = TopologicalSorter(before).static_order()
    return [_stage_status(facts, stage, channels[stage]) for stage in order if stage in channels]


def _stage_status(facts: RunFacts, stage: str, channels: list[ChannelStatus]) -> StageStatus:
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
        release_points=len(tasks & facts.release_points),
        released=len(tasks & facts.released),
    )


def _stage(task: str) -> str:
    return task.partition("/")[0]


def owners(
    connection: psycopg.Connection, pipeline: str, tasks: Collection[str]
) -> dict[str, Owner]:
    """The owners of these tasks; tasks never owned are missing."""
    keys = {task_topic(pipeline, task): task for task in tasks}
    return {keys[key]: owner for key, owner in _lease_owners(connection, "task", keys).items()}


def _lease_owners(
    connection: psycopg.Connection, kind: str, keys: Collection[str]
) -> dict[str, Owner]:
    rows = connection.execute(_SQL["owners"].sql, {"kind": kind, "keys": list(keys)})
    return {key: Owner(owner, epoch, left) for key, owner, epoch, left in rows}


def _source(  # noqa: PLR0913, PLR0917  the columns of a row
    connection: psycopg.Connection,
    run: RunInfo,
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
        missing = numbers_in(select_gaps(connection, run, name, declared).fetchall())
    counts = (delivered, declared, declared_at, ended_at, last_at)
    return SourceStatus(name, *counts, missing, watermark)


_SQL = queries(__name__)
