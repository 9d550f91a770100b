"""Runs of flows: start, control and read them. `tasks` is the interface of workers.

Every operation is one database function and one transaction, so that psql can do the same. Every
change of a run locks its row first, which serialises the changes of one run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import psycopg

from tidegate.errors import FlowInputDiffers, InvalidFlowValue, UnknownFlowRun
from tidegate.flows.model.keys import StateValue
from tidegate.flows.model.states import FlowState, StepState
from tidegate.store.core.database import Database
from tidegate.store.core.queries import queries
from tidegate.store.core.text import storable
from tidegate.store.flows.sql_errors import is_value_refused, raised_sql_errors
from tidegate.store.runs.message_codec import as_json

PAGE = 1000
"""Number of item results read at once."""
SHOWN = 100
"""Number of characters of a refused value that are shown."""


@dataclass(frozen=True, slots=True)
class FlowRunInfo:
    """A run as it was when it was read."""

    id: int
    flow: str
    key: str
    state: FlowState
    cause: str | None
    begun_at: datetime
    closed_at: datetime | None


@dataclass(frozen=True, slots=True)
class StepProgress:
    """Progress of a step of a run."""

    name: str
    kind: str
    state: StepState
    generating: str | None
    """started, complete or failed; None for a step without items."""
    spawned: int
    succeeded: int
    failed: int
    canceled: int
    in_flight: int
    cause: str | None
    last_error: str | None


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of a step as JSON; of a step with items, a summary."""

    state: StepState
    kind: str
    json: str | None


@dataclass(frozen=True, slots=True)
class SweepCounts:
    """What a sweep has changed: tasks freed, runs with waits woken, runs ended."""

    freed: int
    woken: int
    ended: int


def begin_flow(
    connection: psycopg.Connection, flow: str, key: str, value: str, rows: Mapping[str, object]
) -> int:
    """Start a run with this input, as JSON; with a key that was used before, return that run.

    Raises `FlowInputDiffers` when that run was started with another input.
    """
    with _stored(f"the input of flow {flow}", value):
        row = _one(
            connection, "begin", flow=flow, key=key, input=value,
            steps=as_json(rows["steps"]), keys=as_json(rows["keys"]),
        )  # fmt: skip
        parameters = {"run": row[0], "input": value}
        same = connection.execute(_SQL["has_input"].sql, parameters).fetchone()
    if same is not None and not same[0]:
        raise FlowInputDiffers(int(row[0]), flow, key)
    return int(row[0])


def flow_run(connection: psycopg.Connection, run: int) -> FlowRunInfo:
    """The run with this id."""
    row = connection.execute(_SQL["find_run"].sql, {"run": run}).fetchone()
    if row is None:
        raise UnknownFlowRun(run)
    return _run(row)


def flow_run_of_key(connection: psycopg.Connection, flow: str, key: str) -> FlowRunInfo:
    """The run of a flow that has this key."""
    row = connection.execute(_SQL["find_run_of_key"].sql, {"flow": flow, "key": key}).fetchone()
    if row is None:
        raise UnknownFlowRun(key)
    return _run(row)


def flow_runs(
    connection: psycopg.Connection, flow: str | None, most: int = 100
) -> list[FlowRunInfo]:
    """The latest runs, newest first."""
    rows = connection.execute(_SQL["runs"].sql, {"flow": flow, "most": most})
    return [_run(row) for row in rows]


def open_flows_by_input(
    connection: psycopg.Connection, flows: Sequence[str], field: str
) -> list[tuple[str, FlowRunInfo]]:
    """The open runs of these flows, each with one field of its input."""
    rows = connection.execute(_SQL["open_by_input"].sql, {"flows": list(flows), "field": field})
    return [(given, _run(row)) for given, *row in rows]


def flow_progress(connection: psycopg.Connection, run: int) -> list[StepProgress]:
    """The progress of the steps of a run, in topological order."""
    rows = connection.execute(_SQL["progress"].sql, {"run": run})
    return [StepProgress(name, kind, StepState(state), *rest) for name, kind, state, *rest in rows]


def awaited_signals(connection: psycopg.Connection, run: int) -> list[str]:
    """The steps of a run that wait only for their signal."""
    return [name for (name,) in connection.execute(_SQL["awaited_signals"].sql, {"run": run})]


def signal_flow(connection: psycopg.Connection, run: int, step: str, value: str, by: str) -> None:
    """Send a step its signal, as JSON. Repeating it is harmless."""
    with _stored(f"the signal for step {step}", value):
        _one(connection, "signal", run=run, step=step, payload=value, by=by)


def cancel_flow(connection: psycopg.Connection, run: int, reason: str) -> FlowState:
    """Cancel a run; canceling while workers have claims on it. Repeating it is harmless."""
    return FlowState(_one(connection, "cancel", run=run, reason=storable(reason))[0])


def pause_flow(connection: psycopg.Connection, run: int) -> None:
    """Start nothing more of a run; claimed tasks are finished."""
    _one(connection, "pause", run=run)


def resume_flow(connection: psycopg.Connection, run: int) -> None:
    """Resume a paused run."""
    _one(connection, "resume", run=run)


def retry_flow(connection: psycopg.Connection, run: int) -> None:
    """Retry everything of a failed run that did not succeed."""
    _one(connection, "retry", run=run)


def tolerate(
    connection: psycopg.Connection, run: int, step: str, count: int | None, share: float | None
) -> None:
    """Change how many items of a step may fail, while it runs or after it has failed."""
    _one(connection, "tolerate", run=run, step=step, count=count, share=share)


def sweep_flows(connection: psycopg.Connection) -> SweepCounts:
    """Free claims of lost workers, wake waits that timed out, end runs that are being canceled."""
    return SweepCounts(*_one(connection, "sweep"))


def remove_closed_flows(connection: psycopg.Connection, seconds: float) -> int:
    """Remove some of the runs that were closed this long ago, with all their rows."""
    return int(_one(connection, "remove_closed", seconds=seconds)[0])


def flow_state(connection: psycopg.Connection, run: int) -> tuple[int, dict[str, StateValue]]:
    """An upper bound of the number of writes of a run's state that it includes, and the state."""
    changes = int(_one(connection, "changes", run=run)[0])
    rows = connection.execute(_SQL["state"].sql, {"run": run})
    return changes, {key: StateValue(*rest) for key, *rest in rows}


def set_external_state(
    connection: psycopg.Connection, run: int, key: str, value: str, writer: str
) -> None:
    """Write a key that is declared external, as JSON."""
    with _stored(f"the state {key}", value):
        _one(
            connection, "set_state", run=run, key=key, value=value, writer=writer, once=False,
            owner=None, step=None, position=None, epoch=None,
        )  # fmt: skip


def step_result(connection: psycopg.Connection, run: int, step: str) -> StepResult | None:
    """The result of a step; None for an unknown step."""
    row = connection.execute(_SQL["result"].sql, {"run": run, "step": step}).fetchone()
    return StepResult(StepState(row[0]), row[1], row[2]) if row else None


def item_results(
    connection: psycopg.Connection, run: int, step: str, after: int, most: int = PAGE
) -> list[tuple[int, str]]:
    """Positions and results of the succeeded items of a step, in order."""
    parameters = {"run": run, "step": step, "after": after, "most": most}
    return connection.execute(_SQL["item_results"].sql, parameters).fetchall()


def all_item_results(database: Database, run: int, step: str) -> Iterator[str]:
    """The results of all succeeded items of a step, in order, read page by page."""
    after = -1
    while page := database.transact(partial(item_results, run=run, step=step, after=after)):
        yield from (text for _, text in page)
        after = page[-1][0]


@contextmanager
def _stored(of: str, value: str) -> Iterator[None]:
    """Raise `InvalidFlowValue` for what PostgreSQL cannot store, such as a NUL character."""
    try:
        yield
    except psycopg.Error as error:
        if not is_value_refused(error):
            raise
        reason = f"PostgreSQL cannot store it ({str(error).partition(chr(10))[0]})"
        raise InvalidFlowValue(of, value[:SHOWN], reason) from error


def _one(connection: psycopg.Connection, query: str, **parameters: object) -> tuple[Any, ...]:
    with raised_sql_errors():
        row = connection.execute(_SQL[query].sql, parameters).fetchone()
    if row is None:
        raise UnknownFlowRun(int(str(parameters.get("run", 0))))
    return row


def _run(row: Sequence[Any]) -> FlowRunInfo:
    id_, flow, key, state, *rest = row
    return FlowRunInfo(id_, flow, key, FlowState(state), *rest)


_SQL = queries(__name__)
