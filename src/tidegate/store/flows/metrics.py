"""Figures of open runs of flows, as a monitoring system takes them: names, labels, numbers.

Closed runs have none, so that there are never more series than work under way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psycopg

from tidegate.store.core.queries import queries

Rows = list[tuple[Any, ...]]

MOST_RUNS = 1000
"""Runs of which there are figures, the oldest ones; how many there are is always counted."""


@dataclass(frozen=True, slots=True)
class GaugeSpec:
    """What a figure means, and by which labels there is one each."""

    labels: tuple[str, ...]
    help: str


@dataclass(frozen=True, slots=True)
class Gauge:
    """A figure that goes up and down, as it is now."""

    name: str
    help: str
    samples: tuple[tuple[Mapping[str, str], float], ...]


_RUN = ("flow", "run")
_STEP = (*_RUN, "step")
_KEY = (*_RUN, "key")

FIGURES: Mapping[str, GaugeSpec] = {
    "tidegate_flow_runs": GaugeSpec(("flow", "state"), "Open runs."),
    "tidegate_flow_runs_failed": GaugeSpec(
        ("flow",), "Runs that have failed within the last hour."
    ),
    "tidegate_flow_run_open_seconds": GaugeSpec(
        (*_RUN, "state"), "Seconds since a run was begun that is open."
    ),
    "tidegate_flow_items_spawned": GaugeSpec(_STEP, "Items of a step that there are so far."),
    "tidegate_flow_items_succeeded": GaugeSpec(_STEP, "Items of a step that have a result."),
    "tidegate_flow_items_failed": GaugeSpec(_STEP, "Items of a step that have failed for good."),
    "tidegate_flow_items_canceled": GaugeSpec(_STEP, "Items of a step that were given up."),
    "tidegate_flow_items_in_flight": GaugeSpec(
        _STEP, "Items of a step that something is yet to happen to."
    ),
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
        (*_STEP, "key"), "How much a key lacks that a step waits for."
    ),
    "tidegate_flow_ready_seconds": GaugeSpec(
        ("flow", "step"), "Seconds for which a ready task has waited for a worker."
    ),
    "tidegate_flow_workers": GaugeSpec((), "Workers that are alive."),
    "tidegate_cutover_unfed": GaugeSpec(
        ("alias",), "1 where no open run keeps the index fresh that readers see, else 0."
    ),
}
"""All of them, in the order in which they are told."""


def flow_gauges(connection: psycopg.Connection, most: int = MOST_RUNS) -> list[Gauge]:
    """All figures as they are."""
    ask = _Figures(connection, most)
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
    return [_gauge(name, figure, rows[name]) for name, figure in FIGURES.items()]


class _Figures:
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


def _gauge(name: str, figure: GaugeSpec, rows: Rows) -> Gauge:
    samples = (
        (dict(zip(figure.labels, labels, strict=True)), float(number))
        for *labels, number in rows
        if number is not None
    )
    return Gauge(name, figure.help, tuple(samples))


_SQL = queries(__name__)
