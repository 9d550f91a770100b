"""What has happened to a run of a flow, and what it waits for: for people and for log shippers.

Both are written where they happen, in the same transaction; nothing is told that did not happen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from tidegate.flows.gates import Condition, Standing
from tidegate.store.queries import queries

PAGE = 1000
"""Events that are read at once."""


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
class Holding:
    """How many tasks of one step a worker has in hand."""

    worker: str
    step: str
    is_items: bool
    number: int


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


def flow_holdings(connection: psycopg.Connection, run: int) -> list[Holding]:
    """Which workers have tasks of a run in hand."""
    rows = connection.execute(_SQL["holdings"].sql, {"run": run})
    return [
        Holding(worker, queue.removesuffix("[]"), queue.endswith("[]"), number)
        for worker, queue, number in rows
    ]


def _wait(row: tuple[Any, ...]) -> FlowWait:
    step, position, since, waited, until, key, value, target_key, target, writer, age, begun = row
    standing = None
    if key is not None:
        condition = Condition(key, target_key, None if target_key else target)
        standing = Standing(condition, value, target, writer or "", age)
    return FlowWait(step, position, since, waited, until, standing, begun)


_SQL = queries("flow_events")
