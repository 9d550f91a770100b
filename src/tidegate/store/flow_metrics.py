"""Figures of open runs of flows, as a monitoring system takes them: names, labels, numbers.

Closed runs have none, so that there are never more series than work under way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg

from tidegate.store.queries import queries

MOST_RUNS = 1000
"""Runs of which there are figures, the oldest ones; how many there are is always counted."""


@dataclass(frozen=True, slots=True)
class Gauge:
    """A figure that goes up and down, for each value of its labels."""

    name: str
    help: str
    samples: tuple[tuple[Mapping[str, str], float], ...]


_RUN = ("flow", "run")
_ITEMS = {
    "spawned": "Items of a step that there are so far.",
    "succeeded": "Items of a step that have a result.",
    "failed": "Items of a step that have failed for good.",
    "canceled": "Items of a step that were given up.",
    "in_flight": "Items of a step that something is yet to happen to.",
}


def flow_gauges(connection: psycopg.Connection, most: int = MOST_RUNS) -> list[Gauge]:
    """All figures."""
    ask = _Asking(connection, most)
    return [
        _gauge("tidegate_flow_runs", "Open runs.", ("flow", "state"), ask("runs")),
        _gauge(
            "tidegate_flow_run_open_seconds", "Seconds since a run was begun that is open.",
            (*_RUN, "state"), ask("open"),
        ),
        *_items(ask("items")),
        *_state(ask("state")),
        *_waits(ask("waits")),
        _gauge(
            "tidegate_flow_ready_seconds", "Seconds for which a ready task waits for a worker.",
            ("flow", "step"), ask("ready"),
        ),
        _gauge("tidegate_flow_workers", "Workers that are alive.", (), ask("workers")),
    ]  # fmt: skip


class _Asking:
    def __init__(self, connection: psycopg.Connection, most: int) -> None:
        self._connection = connection
        self._most = most

    def __call__(self, query: str) -> list[tuple[Any, ...]]:
        asked = self._connection.execute(_SQL[query].sql, {"most": self._most})
        return asked.fetchall()


def _items(rows: list[tuple[Any, ...]]) -> Iterator[Gauge]:
    for at, (name, told) in enumerate(_ITEMS.items()):
        of_name = [(*row[:3], row[3 + at]) for row in rows]
        yield _gauge(f"tidegate_flow_items_{name}", told, (*_RUN, "step"), of_name)


def _state(rows: list[tuple[Any, ...]]) -> Iterator[Gauge]:
    labels = (*_RUN, "key")
    values = [(*names, value) for *names, value, _ in rows]
    ages = [(*names, age) for *names, _, age in rows]
    yield _gauge("tidegate_flow_state_value", "A number in a run's state.", labels, values)
    told = "Seconds since a key of a run's state was written."
    yield _gauge("tidegate_flow_state_age_seconds", told, labels, ages)


def _waits(rows: list[tuple[Any, ...]]) -> Iterator[Gauge]:
    longest = {tuple(names): (*names, waited) for *names, _, waited, _ in rows}
    told = "Seconds for which a step has waited for its run's state."
    yield _gauge("tidegate_flow_wait_seconds", told, (*_RUN, "step"), list(longest.values()))
    behind = [(*names, missing) for *names, _, missing in rows]
    told = "How much a key lacks that a step waits for."
    yield _gauge("tidegate_flow_wait_behind", told, (*_RUN, "step", "key"), behind)


def _gauge(name: str, told: str, labels: tuple[str, ...], rows: list[tuple[Any, ...]]) -> Gauge:
    samples = (
        (dict(zip(labels, values, strict=True)), float(number))
        for *values, number in rows
        if number is not None
    )
    return Gauge(name, told, tuple(samples))


_SQL = queries("flow_metrics")
