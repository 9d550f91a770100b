"""What has happened to a run of a flow, and what it waits for: for people and for log shippers.

Both are written where they happen, in the same transaction; nothing is told that did not happen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from tidegate.flows.model.gates import Condition, Standing
from tidegate.flows.model.states import StepState
from tidegate.store.core.queries import queries

PAGE = 1000
"""Events that are read at once."""
WITH_ITEMS = ("map", "generator")
"""Kinds of steps."""


@dataclass(frozen=True, slots=True)
class FlowEvent:
    """One thing that happened to a run; a run's later ones have greater ids."""

    id: int
    run: int
    at: datetime
    kind: str
    """run, step, policy, signal, state or wait."""
    name: str
    """Of the flow, the step, or the key of the state."""
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FlowWait:
    """A task that waits for a key of its run's state, or for a run of a pipeline."""

    step: str
    position: int
    """-1 for the step itself, else of the item."""
    waiting_since: datetime
    waited: float
    """Seconds."""
    wait_until: datetime | None
    standing: Standing | None
    """How far the key is; None for a wait that is not for the state."""
    pipeline_run: str | None = None
    """The run of a pipeline that it waits for instead."""


@dataclass(frozen=True, slots=True)
class WorkerTasks:
    """How many tasks of one step a worker has in hand."""

    worker: str
    step: str
    is_items: bool
    number: int


@dataclass(frozen=True, slots=True)
class EarlierEvents:
    """What happened to a run before somebody began to look."""

    events: int
    last: int
    """The id of the last of them."""
    age: float
    """Seconds since the run was begun, by the clock of the database."""


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What became of a step."""

    step: str
    kind: str
    state: StepState
    is_last: bool
    """Whether no other step takes its result."""

    @property
    def has_items(self) -> bool:
        """Whether it gives one result for each of its items."""
        return self.kind in WITH_ITEMS


@dataclass(frozen=True, slots=True)
class FailedTask:
    """An item that has failed for good, or the function of a step."""

    step: str
    position: int | None
    """Of the item; None for the step's own function."""
    key: str | None
    attempts: int
    cause: str | None
    """The first error."""
    last_error: str | None


def flow_events(
    connection: psycopg.Connection, run: int, after: int = 0, most: int = PAGE
) -> list[FlowEvent]:
    """What happened to a run behind an event, in order, so many of it."""
    asked = {"run": run, "after": after, "most": most}
    return [FlowEvent(*row) for row in connection.execute(_SQL["events"].sql, asked)]


def flow_waits(connection: psycopg.Connection, run: int, most: int = PAGE) -> list[FlowWait]:
    """What the tasks of a run wait for, those of steps first: one for each task and key.

    A key that another has to reach is told with that one.
    """
    rows = connection.execute(_SQL["waits"].sql, {"run": run, "most": most})
    return [_wait(row) for row in rows]


def tasks_by_worker(connection: psycopg.Connection, run: int) -> list[WorkerTasks]:
    """Which workers have tasks of a run in hand."""
    rows = connection.execute(_SQL["claimed_tasks"].sql, {"run": run})
    return [
        WorkerTasks(worker, queue.removesuffix("[]"), queue.endswith("[]"), number)
        for worker, queue, number in rows
    ]


def earlier_events(connection: psycopg.Connection, run: int, seconds: float) -> EarlierEvents:
    """What happened to a run longer than so many seconds ago."""
    row = connection.execute(_SQL["past"].sql, {"run": run, "seconds": seconds}).fetchone()
    return EarlierEvents(*row) if row else EarlierEvents(0, 0, 0.0)


def flow_ready(connection: psycopg.Connection, run: int) -> dict[str, float]:
    """The steps of a run that have something to do which nobody does, and for how many seconds."""
    found: dict[str, float] = {}
    for step, seconds in connection.execute(_SQL["ready"].sql, {"run": run}):
        found[step] = max(seconds, found.get(step, 0.0))
    return found


def count_flow_workers(connection: psycopg.Connection) -> int:
    """How many workers of flows are alive."""
    row = connection.execute(_SQL["workers"].sql).fetchone()
    return int(row[0]) if row else 0


def flow_outcomes(connection: psycopg.Connection, run: int) -> list[StepOutcome]:
    """What became of the steps of a run, each behind those that it depends on."""
    rows = connection.execute(_SQL["outcomes"].sql, {"run": run})
    return [
        StepOutcome(name, kind, StepState(state), is_last) for name, kind, state, is_last in rows
    ]


def failed_tasks(
    connection: psycopg.Connection, run: int, step: str | None = None, most: int = PAGE
) -> tuple[int, list[FailedTask]]:
    """How much has failed for good in a run, or in one step of it, and so many of that."""
    asked = {"run": run, "step": step, "most": most}
    number = connection.execute(_SQL["count_failed"].sql, asked).fetchone()
    rows = connection.execute(_SQL["failed"].sql, asked).fetchall()
    return int(number[0]) if number else 0, [FailedTask(*row) for row in rows]


def _wait(row: tuple[Any, ...]) -> FlowWait:
    step, position, since, waited, until, key, value, target_key, target, writer, age, begun = row
    standing = None
    if key is not None:
        condition = Condition(key, target_key, None if target_key else target)
        standing = Standing(condition, value, target, writer or "", age)
    return FlowWait(step, position, since, waited, until, standing, begun)


_SQL = queries(__name__)
