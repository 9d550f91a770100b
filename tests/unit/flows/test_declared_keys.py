"""A step names keys of the state of its own flow, and no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.flows.test_declarations import plain, refused
from tidegate.errors import ForeignStateKey, UnknownStateKey
from tidegate.flows import Flow, all_of, is_set, reached

other_flow = Flow("other")
other_flow.state("mark", int)


@pytest.mark.parametrize("option", ["writes", "reads"])
def test_a_key_that_is_not_declared_is_refused_with_those_that_are(option: str) -> None:
    flow, nothing_declared = Flow("f"), Flow("g")
    flow.state("offset", int)
    for it in (flow, nothing_declared):
        it.step(**{option: "ofset"})(plain)  # type: ignore[call-overload]  # wrong
    error = refused(UnknownStateKey, flow)
    assert (error.flow, error.step, error.key, error.known) == ("f", "plain", "ofset", "offset")
    assert refused(UnknownStateKey, nothing_declared).known == "none"


@pytest.mark.parametrize("is_namesake_declared", [False, True])
@pytest.mark.parametrize(
    "use",
    [
        lambda key: {"writes": key},
        lambda key: {"reads": [key]},
        lambda key: {"wait_for": is_set(key)},
        lambda key: {"wait_for": all_of(reached(key, 7))},
        lambda key: {"wait_for": reached(other_flow.keys["mark"], key)},
    ],
)
def test_a_key_of_another_flow_is_refused_at_once(
    use: Callable[[Any], dict[str, Any]], is_namesake_declared: bool
) -> None:
    flow, key = Flow("f"), other_flow.keys["mark"]
    if is_namesake_declared:
        flow.state("mark", int, external=True)
    error = refused(ForeignStateKey, lambda: flow.step(**use(key))(plain))  # wrong
    assert (error.flow, error.step, error.key, error.first) == ("f", "plain", "mark", key.at)
    assert error.of == "the state 'mark' of flow 'other'"


def test_keys_may_come_from_an_iterator_that_is_read_once() -> None:
    flow = Flow("f")
    keys = [flow.state(name, int) for name in ("one", "two")]
    step = flow.step(writes=iter(keys), reads=(it.name for it in keys))(plain)
    assert step.writes == step.reads == ("one", "two")
