"""What operators are given to load asks only for figures that there are, with labels they have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidegate.store.flows.metrics import GAUGES

ALERTS = Path(__file__).parents[3] / "docs" / "alerts"
RULES = (ALERTS / "flows.rules.yml").read_text()
DASHBOARD = json.loads((ALERTS / "flows.dashboard.json").read_text())
NAME = re.compile(r"\btidegate_\w+")
SELECTOR = re.compile(r"(tidegate_\w+)\{([^}]*)\}")
GROUPED = re.compile(r"by \(([\w, ]+)\) \((?:deriv\()?(tidegate_\w+)")


def expressions() -> Iterator[str]:
    """Rules have their expression on one line, or indented below it."""
    for found in re.finditer(r"^ {8}expr: (>-\n(?: {10}.+\n)+|.+\n)", RULES, re.MULTILINE):
        yield " ".join(found[1].removeprefix(">-").split())
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["definition"]


def test_every_rule_has_an_expression_and_a_summary() -> None:
    alerts = re.findall(r"^ {6}- alert: (\w+)$", RULES, re.MULTILINE)
    assert {"FlowWatermarkStalled", "FlowItemsFailing", "FlowWithoutWorkers"} <= set(alerts)
    assert "CutoverIndexUnfed" in alerts
    assert len(alerts) == len(set(alerts))
    for part in ("expr", "labels", "annotations"):
        assert len(re.findall(rf"^ {{8}}{part}:", RULES, re.MULTILINE)) == len(alerts)
    assert RULES.count("\t") == 0


@pytest.mark.parametrize("expression", list(expressions()))
def test_an_expression_uses_existing_metrics(expression: str) -> None:
    assert expression.count("(") == expression.count(")")
    names = NAME.findall(expression)
    assert names
    assert set(names) <= set(GAUGES)


@pytest.mark.parametrize("expression", list(expressions()))
def test_an_expression_uses_existing_labels(expression: str) -> None:
    for name, selected in SELECTOR.findall(expression):
        assert set(re.findall(r"(\w+)=", selected)) <= set(GAUGES[name].labels)
    for grouped, name in GROUPED.findall(expression):
        assert set(grouped.split(", ")) <= set(GAUGES[name].labels)


def test_the_cards_of_the_dashboard_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        cells = set(_cells(panel["gridPos"]))
        assert not cells & taken
        taken |= cells
    assert max(x for x, _ in taken) < 24


def test_every_figure_is_on_the_dashboard() -> None:
    shown = {name for it in expressions() for name in NAME.findall(it)}
    assert shown == set(GAUGES)


def _cells(place: dict[str, Any]) -> Iterator[tuple[int, int]]:
    for x in range(place["x"], place["x"] + place["w"]):
        for y in range(place["y"], place["y"] + place["h"]):
            yield x, y
