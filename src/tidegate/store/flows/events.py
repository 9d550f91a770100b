"""Events and waits of flow runs, for people and log shippers.

Both are written in the transaction of the change that they describe.
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
"""Number of events read at once."""
WITH_ITEMS = ("map", "generator")
"""The kinds of steps with items."""


@dataclass(frozen=True, slots=True)
class FlowEvent:
    """An event of a run; later events of a run have greater ids."""

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
    """A task that waits for a key of its run's state, or for a pipeline run."""

    step: str
    position: int
    """-1 for the step itself, else of the item."""
    waiting_since: datetime
    waited: float
    """Seconds."""
    wait_until: datetime | None
    standing: Standing | None
    """The progress of the key; None for a wait that is not for the state."""
    pipeline_run: str | None = None
    """The pipeline run that it waits for instead."""


@dataclass(frozen=True, slots=True)
class WorkerTasks:
    """The number of tasks of a step that a worker has claimed."""

    worker: str
    step: str
    is_items: bool
    number: int


@dataclass(frozen=True, slots=True)
class EarlierEvents:
    """The events of a run before a point in time."""

    events: int
    last: int
    """The id of the last of them."""
    age: float
    """Seconds since the run was started, by the clock of the database."""


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """The outcome of a step."""

    step: str
    kind: str
    state: StepState
    is_last: bool
    """Whether no other step uses its result."""

    @property
    def has_items(self) -> bool:
        """Whether it has one result for each of its items."""
        return self.kind in WITH_ITEMS


@dataclass(frozen=True, slots=True)
class FailedTask:
    """An item or a step's own task that has failed permanently."""

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
    """The next events of a run after an event, in order."""
    parameters = {"run": run, "after": after, "most": most}
    return [FlowEvent(*row) for row in connection.execute(_SQL["events"].sql, parameters)]


def flow_waits(connection: psycopg.Connection, run: int, most: int = PAGE) -> list[FlowWait]:
    """The waits of a run's tasks, those of steps first: one for each task and key.

    The target of a key is part of the key's wait.
    """
    rows = connection.execute(_SQL["waits"].sql, {"run": run, "most": most})
    return [_wait(row) for row in rows]


def tasks_by_worker(connection: psycopg.Connection, run: int) -> list[WorkerTasks]:
    """The claimed tasks of a run, by worker and step."""
    rows = connection.execute(_SQL["claimed_tasks"].sql, {"run": run})
    return [
        WorkerTasks(worker, queue.removesuffix("[]"), queue.endswith("[]"), number)
        for worker, queue, number in rows
    ]


def earlier_events(connection: psycopg.Connection, run: int, seconds: float) -> EarlierEvents:
    """The events of a run that are older than this."""
    row = connection.execute(_SQL["earlier"].sql, {"run": run, "seconds": seconds}).fetchone()
    return EarlierEvents(*row) if row else EarlierEvents(0, 0, 0.0)


def flow_ready(connection: psycopg.Connection, run: int) -> dict[str, float]:
    """The steps of a run with ready tasks that no worker claims, and for how many seconds."""
    found: dict[str, float] = {}
    for step, seconds in connection.execute(_SQL["ready"].sql, {"run": run}):
        found[step] = max(seconds, found.get(step, 0.0))
    return found


def count_flow_workers(connection: psycopg.Connection) -> int:
    """The number of running flow workers."""
    row = connection.execute(_SQL["workers"].sql).fetchone()
    return int(row[0]) if row else 0


def flow_outcomes(connection: psycopg.Connection, run: int) -> list[StepOutcome]:
    """The outcomes of the steps of a run, in topological order."""
    rows = connection.execute(_SQL["outcomes"].sql, {"run": run})
    return [
        StepOutcome(name, kind, StepState(state), is_last) for name, kind, state, is_last in rows
    ]


def failed_tasks(
    connection: psycopg.Connection, run: int, step: str | None = None, most: int = PAGE
) -> tuple[int, list[FailedTask]]:
    """The number of permanently failed tasks of a run or step, and the first of them."""
    parameters = {"run": run, "step": step, "most": most}
    number = connection.execute(_SQL["count_failed"].sql, parameters).fetchone()
    rows = connection.execute(_SQL["failed"].sql, parameters).fetchall()
    return int(number[0]) if number else 0, [FailedTask(*row) for row in rows]


def _wait(row: tuple[Any, ...]) -> FlowWait:
    step, position, since, waited, until, key, value, target_key, target, writer, age, run = row
    standing = None
    if key is not None:
        condition = Condition(key, target_key, None if target_key else target)
        standing = Standing(condition, value, target, writer or "", age)
    return FlowWait(step, position, since, waited, until, standing, run)


_SQL = queries(__name__)
