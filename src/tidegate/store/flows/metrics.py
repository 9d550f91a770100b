"""Gauges of open flow runs, for monitoring systems.

Closed runs have none, so that the number of series is bounded by the open work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psycopg

from tidegate.store.core.queries import queries

Rows = list[tuple[Any, ...]]

MOST_RUNS = 1000
"""Largest number of runs with gauges, the oldest ones; all runs are counted."""


@dataclass(frozen=True, slots=True)
class GaugeSpec:
    """Labels and help text of a gauge."""

    labels: tuple[str, ...]
    help: str


@dataclass(frozen=True, slots=True)
class Gauge:
    """A gauge with its current samples."""

    name: str
    help: str
    samples: tuple[tuple[Mapping[str, str], float], ...]


_RUN = ("flow", "run")
_STEP = (*_RUN, "step")
_KEY = (*_RUN, "key")

GAUGES: Mapping[str, GaugeSpec] = {
    "tidegate_flow_runs": GaugeSpec(("flow", "state"), "Open runs."),
    "tidegate_flow_runs_failed": GaugeSpec(
        ("flow",), "Runs that have failed within the last hour."
    ),
    "tidegate_flow_run_open_seconds": GaugeSpec(
        (*_RUN, "state"), "Seconds since the start of an open run."
    ),
    "tidegate_flow_items_spawned": GaugeSpec(_STEP, "Items of a step created so far."),
    "tidegate_flow_items_succeeded": GaugeSpec(_STEP, "Items of a step that have succeeded."),
    "tidegate_flow_items_failed": GaugeSpec(_STEP, "Items of a step that have failed permanently."),
    "tidegate_flow_items_canceled": GaugeSpec(_STEP, "Items of a step that were canceled."),
    "tidegate_flow_items_in_flight": GaugeSpec(_STEP, "Items of a step that are not finished."),
    "tidegate_flow_state_value": GaugeSpec(
        _KEY, "A number in the state of a run; true is 1, and false is 0."
    ),
    "tidegate_flow_state_age_seconds": GaugeSpec(
        _KEY, "Seconds since a key of a run's state was written."
    ),
    "tidegate_flow_wait_seconds": GaugeSpec(
        _STEP, "Seconds for which a step has waited for its run's state."
    ),
    "tidegate_flow_wait_behind": GaugeSpec(
        (*_STEP, "key"), "Difference between a key that a step waits for and its target."
    ),
    "tidegate_flow_ready_seconds": GaugeSpec(
        ("flow", "step"), "Seconds for which a ready task has waited for a worker."
    ),
    "tidegate_flow_workers": GaugeSpec((), "Running flow workers."),
    "tidegate_cutover_unfed": GaugeSpec(
        ("alias",), "1 where no open run keeps the index behind an alias up to date, else 0."
    ),
}
"""All gauges, in the order of output."""


def flow_gauges(connection: psycopg.Connection, most: int = MOST_RUNS) -> list[Gauge]:
    """The current gauges."""
    ask = _Rows(connection, most)
    rows = {
        "tidegate_flow_runs": ask("runs"),
        "tidegate_flow_runs_failed": ask("failed"),
        "tidegate_flow_run_open_seconds": ask("open"),
        **_items(ask("items")),
        **_state(ask("state")),
        **_waits(ask("waits")),
        "tidegate_flow_ready_seconds": ask("ready"),
        "tidegate_flow_workers": ask("workers"),
        "tidegate_cutover_unfed": ask("unfed"),
    }
    return [_gauge(name, spec, rows[name]) for name, spec in GAUGES.items()]


class _Rows:
    def __init__(self, connection: psycopg.Connection, most: int) -> None:
        self._connection = connection
        self._most = most

    def __call__(self, query: str) -> Rows:
        return self._connection.execute(_SQL[query].sql, {"most": self._most}).fetchall()


def _items(rows: Rows) -> dict[str, Rows]:
    names = ("spawned", "succeeded", "failed", "canceled", "in_flight")
    return {
        f"tidegate_flow_items_{name}": [(*row[:3], row[3 + at]) for row in rows]
        for at, name in enumerate(names)
    }


def _state(rows: Rows) -> dict[str, Rows]:
    return {
        "tidegate_flow_state_value": [(*labels, value) for *labels, value, _ in rows],
        "tidegate_flow_state_age_seconds": [(*labels, age) for *labels, _, age in rows],
    }


def _waits(rows: Rows) -> dict[str, Rows]:
    steps = {tuple(step): (*step, waited) for *step, _, waited, _ in rows}
    return {
        "tidegate_flow_wait_seconds": list(steps.values()),
        "tidegate_flow_wait_behind": [(*labels, behind) for *labels, _, behind in rows],
    }


def _gauge(name: str, spec: GaugeSpec, rows: Rows) -> Gauge:
    samples = (
        (dict(zip(spec.labels, labels, strict=True)), float(number))
        for *labels, number in rows
        if number is not None
    )
    return Gauge(name, spec.help, tuple(samples))


_SQL = queries(__name__)
