"""The state of a run: who may write it, what it refuses, and whom it wakes."""

from __future__ import annotations

import pytest

from tests.integration.flows.conftest import Hand
from tests.integration.flows.declared import gated
from tidegate.errors import (
    InvalidFlowValue,
    StateRegressed,
    StateUndeclared,
)
from tidegate.store.flows import runs as store
from tidegate.store.flows import tasks


def test_a_monotonic_key_never_goes_back(hand: Hand) -> None:
    run = hand.begin(gated, "5")
    hand.do(store.set_external_state, run, "offset", "7", "a feed")
    hand.do(store.set_external_state, run, "offset", "7", "another feed")
    with pytest.raises(StateRegressed) as refused:
        hand.do(store.set_external_state, run, "offset", "6", "a feed")
    assert (refused.value.current, refused.value.writer) == ("7", "a feed")
    _, values = hand.do(store.flow_state, run)
    assert values["offset"].json == "7"


def test_only_declared_writers_write(hand: Hand) -> None:
    run = hand.begin(gated, "5")
    with pytest.raises(StateUndeclared):
        hand.do(store.set_external_state, run, "target", "1", "outside")
    (step,) = hand.claim("gated/switch")
    with pytest.raises(StateUndeclared):
        hand.do(tasks.set_state, step, "offset", "1", "switch", once=False)


def test_a_key_that_is_set_once_keeps_its_first_value(hand: Hand) -> None:
    hand.begin(gated, "5")
    (step,) = hand.claim("gated/switch")
    assert hand.do(tasks.set_state, step, "target", "5", "switch", once=True) == "5"
    assert hand.do(tasks.set_state, step, "target", "9", "switch", once=True) == "5"


def suspended(hand: Hand, seen: int = 0, timeout: float | None = None) -> tuple[int, str]:
    run = hand.begin(gated, "5")
    (step,) = hand.claim("gated/switch")
    return run, hand.do(tasks.suspend, step, ["offset"], seen, 1, 0.0, timeout)


def test_a_suspended_task_is_ready_when_one_of_its_keys_was_written(hand: Hand) -> None:
    run, state = suspended(hand)
    assert (state, hand.claim("gated/switch")) == ("suspended", [])
    hand.do(store.set_external_state, run, "offset", "1", "a feed")
    (step,) = hand.claim("gated/switch")
    assert (step.attempt, step.wait_number) == (1, 1)


def test_a_write_between_the_look_and_the_suspending_is_not_missed(hand: Hand) -> None:
    run = hand.begin(gated, "5")
    (step,) = hand.claim("gated/switch")
    seen, _ = hand.do(store.flow_state, run)
    hand.do(store.set_external_state, run, "offset", "1", "a feed")
    assert hand.do(tasks.suspend, step, ["offset"], seen, 1, 0.0, None) == "ready"
    assert len(hand.claim("gated/switch")) == 1


def test_a_wait_whose_bound_has_passed_is_woken_by_a_sweep(hand: Hand) -> None:
    suspended(hand, timeout=0.0)
    assert hand.do(store.sweep_flows).woken == 1
    (step,) = hand.claim("gated/switch")
    assert step.waited is not None


def test_cancelling_ends_a_suspended_run_at_once(hand: Hand) -> None:
    run, _ = suspended(hand)
    assert hand.do(store.cancel_flow, run, "enough").value == "canceled"


def test_a_paused_run_holds_what_was_woken(hand: Hand) -> None:
    run, _ = suspended(hand)
    hand.do(store.pause_flow, run)
    hand.do(store.set_external_state, run, "offset", "1", "a feed")
    assert hand.claim("gated/switch") == []
    hand.do(store.resume_flow, run)
    assert len(hand.claim("gated/switch")) == 1


@pytest.mark.parametrize("value", ["true", "{}", "[]", '"7"', "null"])
def test_a_monotonic_key_keeps_its_kind_while_its_run_is_open(hand: Hand, value: str) -> None:
    run = hand.begin(gated, "5")
    hand.ask("UPDATE tidegate.flow_state SET type = NULL RETURNING 1")  # as earlier releases do
    hand.do(store.set_external_state, run, "offset", "7", "a feed")
    with pytest.raises(InvalidFlowValue) as refused:
        hand.do(store.set_external_state, run, "offset", value, "a clerk")
    assert refused.value.value == value
    hand.do(store.set_external_state, run, "offset", "7.5", "a feed")
    hand.do(store.set_external_state, run, "offset", "8", "a feed")


def bounds(hand: Hand, run: int) -> tuple[float, float]:
    """Seconds for which the task of a run has waited, and for which it still may."""
    asked = (
        "SELECT extract(epoch FROM clock_timestamp() - waiting_since)::float,"
        " extract(epoch FROM wait_until - clock_timestamp())::float"
        " FROM tidegate.flow_task WHERE run_id = %s AND wait_number IS NOT NULL"
    )
    ((waited, left),) = hand.ask(asked, run)
    return waited, left


def an_hour_later(hand: Hand, run: int) -> None:
    """As if everything so far had happened an hour ago."""
    hand.ask(
        "UPDATE tidegate.flow_run SET paused_at = paused_at - interval '1 hour'"
        " WHERE id = %s RETURNING 1", run
    )  # fmt: skip
    hand.ask(
        "UPDATE tidegate.flow_task SET waiting_since = waiting_since - interval '1 hour',"
        " wait_until = wait_until - interval '1 hour' WHERE run_id = %s RETURNING 1", run
    )  # fmt: skip


def test_the_bound_of_a_wait_stands_still_while_its_run_is_paused(hand: Hand) -> None:
    run, _ = suspended(hand, timeout=60.0)
    hand.do(store.pause_flow, run)
    an_hour_later(hand, run)
    hand.do(store.pause_flow, run)
    assert hand.do(store.sweep_flows).woken == 0
    hand.do(store.resume_flow, run)
    hand.do(store.resume_flow, run)
    waited, left = bounds(hand, run)
    assert waited < 30 < left <= 60
    assert hand.do(store.sweep_flows).woken == 0


def test_a_wait_that_began_in_a_pause_is_made_up_for_from_then_on(hand: Hand) -> None:
    run = hand.begin(gated, "5")
    (step,) = hand.claim("gated/switch")
    hand.do(store.pause_flow, run)
    an_hour_later(hand, run)
    hand.do(tasks.suspend, step, ["offset"], 0, 1, 0.0, 60.0)
    hand.do(store.resume_flow, run)
    waited, left = bounds(hand, run)
    assert 0 <= waited < 30 < left <= 60


def test_a_pause_that_ended_in_a_failure_is_not_made_up_for_later(hand: Hand) -> None:
    run = hand.begin(gated, "5")
    (step,) = hand.claim("gated/switch")
    hand.do(store.pause_flow, run)
    hand.do(tasks.fail, step, "broken", 0.0, is_final=True)
    an_hour_later(hand, run)
    hand.do(store.retry_flow, run)
    (again,) = hand.claim("gated/switch")
    hand.do(tasks.suspend, again, ["offset"], 0, 1, 0.0, 60.0)
    hand.do(store.pause_flow, run)
    hand.do(store.resume_flow, run)
    assert bounds(hand, run)[1] <= 60


def test_a_wait_is_looked_at_when_its_bound_has_passed_however_seldom_it_is_otherwise(
    hand: Hand,
) -> None:
    hand.begin(gated, "5")
    (step,) = hand.claim("gated/switch")
    hand.do(tasks.suspend, step, ["offset"], 0, 1, 3600.0, 0.0)
    assert hand.do(store.sweep_flows).woken == 1
    assert len(hand.claim("gated/switch")) == 1


def test_a_wait_without_a_bound_keeps_its_pace(hand: Hand) -> None:
    run = hand.begin(gated, "5")
    (step,) = hand.claim("gated/switch")
    hand.do(tasks.suspend, step, ["offset"], 0, 1, 3600.0, None)
    hand.do(store.set_external_state, run, "offset", "1", "a feed")
    assert hand.claim("gated/switch") == []
