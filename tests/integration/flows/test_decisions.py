"""The database decides as the pure functions do, on any facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import HealthCheck, given, settings

from tests.integration.flows.conftest import Hand
from tests.unit.flows.decide import ItemCounts, WaitingFacts, decide_readiness, decide_verdict
from tests.unit.flows.test_decide import counts, policies, waiting
from tidegate.flows import FailAtFirst, Tolerate
from tidegate.flows.model.states import FLOW_TRANSITIONS, STEP_TRANSITIONS, TASK_TRANSITIONS

SAME_DATABASE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def test_the_database_knows_the_same_transitions(hand: Hand) -> None:
    tables: dict[str, Mapping[Any, frozenset[Any]]] = {
        "flow": FLOW_TRANSITIONS,
        "step": STEP_TRANSITIONS,
        "task": TASK_TRANSITIONS,
    }
    for kind, table in tables.items():
        for old in table:
            allowed = {
                new.value
                for new in table
                if hand.ask("SELECT tidegate.flow_may_move(%s, %s, %s)", kind, old.value, new.value)
                == [(True,)]
            }
            assert allowed == {new.value for new in table[old]}, (kind, old)


@SAME_DATABASE
@given(counts, policies)
def test_the_database_judges_items_the_same(
    hand: Hand, it: ItemCounts, policy: FailAtFirst | Tolerate
) -> None:
    tolerate = policy if isinstance(policy, Tolerate) else Tolerate()
    asked = "SELECT tidegate.flow_verdict(%s, %s, %s, %s, %s, %s, %s)"
    found = hand.ask(
        asked, it.is_ended, it.spawned, it.succeeded, it.failed, it.canceled, tolerate.count,
        tolerate.share,
    )  # fmt: skip
    assert found == [(decide_verdict(it, policy).value,)]


@SAME_DATABASE
@given(waiting)
def test_the_database_judges_readiness_the_same(hand: Hand, facts: WaitingFacts) -> None:
    states = [state.value for state in facts.dependencies.values()]
    optional = [name in facts.optional for name in facts.dependencies]
    asked = "SELECT tidegate.flow_readiness(%s::text[], %s::boolean[], %s, %s)"
    found = hand.ask(asked, states, optional, facts.needs_signal, facts.has_signal)
    assert found == [(decide_readiness(facts).value,)]
