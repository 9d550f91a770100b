"""The tables of transitions are whole: every state has its row, and can be reached."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import pytest

from tidegate.flows import FlowState, StepState, TaskState
from tidegate.flows.model.states import FLOW_TRANSITIONS, OVER, STEP_TRANSITIONS, TASK_TRANSITIONS

TABLES = [
    (FlowState, FLOW_TRANSITIONS, FlowState.RUNNING),
    (StepState, STEP_TRANSITIONS, StepState.WAITING),
    (TaskState, TASK_TRANSITIONS, TaskState.READY),
]


@pytest.mark.parametrize(("states", "table", "first"), TABLES)
def test_every_state_has_a_row_and_can_be_reached(
    states: type[Enum], table: Mapping[Any, frozenset[Any]], first: Enum
) -> None:
    assert set(table) == set(states)
    reached, left = {first}, [first]
    while left:
        following = table[left.pop()] - reached
        reached |= following
        left += following
    assert reached == set(states)


def test_a_run_that_is_given_up_only_ends_as_canceled() -> None:
    assert FLOW_TRANSITIONS[FlowState.CANCELING] == {FlowState.CANCELED}
    assert not FLOW_TRANSITIONS[FlowState.CANCELED]
    assert FlowState.CANCELED in OVER
