"""Gates say which keys they read, whether they hold, and how far they are."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from tests.unit.flows.test_declarations import plain
from tidegate.errors import InvalidArgument, StateNeverWritten
from tidegate.flows import Flow, FlowStateReader, StateGate, all_of, is_set, reached
from tidegate.flows.model.gates import Condition, keys_of, standing
from tidegate.flows.model.keys import StateValue

flow = Flow("cutover")
offset = flow.state("offset", int, monotonic=True)
watermark = flow.state("watermark", int)
done = flow.state("done", bool)
day = flow.state("day", date)
last_day = flow.state("last_day", date)

Values = dict[str, StateValue]


def reader(values: Values) -> FlowStateReader:
    return FlowStateReader("switch", dict(flow.keys), values)


def state(**values: str) -> Values:
    return {name: StateValue(text, "consume", 1, 12.0) for name, text in values.items()}


@pytest.mark.parametrize(
    ("gate", "values", "is_open"),
    [
        (reached(offset, watermark), {}, False),
        (reached(offset, watermark), {"offset": "5"}, False),
        (reached(offset, watermark), {"watermark": "5"}, False),
        (reached(offset, watermark), {"offset": "4", "watermark": "5"}, False),
        (reached(offset, watermark), {"offset": "5", "watermark": "5"}, True),
        (reached(offset, 0), {"offset": "0"}, True),
        (reached(offset, 7), {"offset": "6"}, False),
        (reached(day, last_day), {"day": '"2026-03-01"', "last_day": '"2026-02-28"'}, True),
        (is_set(done), {}, False),
        (is_set(done), {"done": "false"}, False),
        (is_set(done), {"done": "true"}, True),
        (is_set(offset), {"offset": "0"}, True),
        (is_set(done) & reached(offset, 7), {"done": "true", "offset": "7"}, True),
        (is_set(done) & reached(offset, 7), {"offset": "7"}, False),
        (all_of(), {}, True),
    ],
)
def test_a_gate_is_open_when_all_that_it_names_is_so(
    gate: StateGate, values: dict[str, str], is_open: bool
) -> None:
    found = reader(state(**values))
    assert gate(found) is is_open
    assert (list(gate.missing(found)) == []) is is_open


def test_a_gate_names_every_key_once() -> None:
    gate = all_of(is_set(done), reached(offset, watermark)) & reached(offset, 7)
    assert keys_of(gate.conditions) == ("done", "offset", "watermark")


@pytest.mark.parametrize(
    ("condition", "values", "said"),
    [
        (
            Condition("offset", "watermark"),
            state(offset="4100", watermark="5000"),
            "offset is 4,100 of 5,000 (watermark): 900 behind, last written by consume 12.0 s ago",
        ),
        (
            Condition("offset", None, "5000"),
            state(offset="4100.5"),
            "offset is 4,100.5 of 5,000: 899.5 behind, last written by consume 12.0 s ago",
        ),
        (
            Condition("offset", "watermark"),
            state(watermark="5000"),
            "offset was never written, and has to reach 5,000 (watermark)",
        ),
        (
            Condition("offset", "watermark"),
            state(offset="1"),
            "offset is 1, and watermark was never written, last written by consume 12.0 s ago",
        ),
        (
            Condition("day", "last_day"),
            state(day='"2026-03-01"', last_day='"2026-03-02"'),
            (
                'day is "2026-03-01", and has to reach "2026-03-02" (last_day),'
                " last written by consume 12.0 s ago"
            ),
        ),
        (Condition("done"), {}, "done was never written"),
    ],
)
def test_a_condition_reports_its_progress_and_age(
    condition: Condition, values: Values, said: str
) -> None:
    assert str(standing(condition, values)) == said


def test_a_gate_declares_what_it_reads_by_itself() -> None:
    found = Flow("f")
    head = found.state("head", int, external=True)
    goal = found.state("goal", int, external=True)
    other = found.state("other", int, external=True)
    step = found.step(wait_for=reached(head, goal), reads=other)(plain)
    assert found.definition.steps["plain"].step.reads == step.reads == ("other", "head", "goal")


def test_a_gate_on_a_key_that_no_step_writes_is_refused() -> None:
    found = Flow("f")
    head = found.state("head", int)
    found.step(wait_for=reached(head, 7))(plain)
    with pytest.raises(StateNeverWritten) as error:
        found.definition  # noqa: B018
    assert error.value.key == "head"


@pytest.mark.parametrize(
    ("make", "given", "argument"),
    [
        (reached, (offset, day), "watermark"),
        (reached, (offset, "seven"), "watermark"),
        (reached, ("offset", 7), "offset"),
        (is_set, ("done",), "key"),
        (all_of, (lambda state: True,), "gates"),
    ],
)
def test_a_gate_that_means_nothing_is_refused_at_the_line(
    make: Callable[..., StateGate], given: tuple[Any, ...], argument: str
) -> None:
    with pytest.raises(InvalidArgument) as error:
        make(*given)
    assert error.value.argument == argument
    assert error.value.at.file == __file__
