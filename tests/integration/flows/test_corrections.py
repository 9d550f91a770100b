"""What a run has failed with is put right, and the run is tried again."""

from __future__ import annotations

import pytest

from tests.integration.flows.conftest import ITEMS, Hand
from tests.integration.flows.declared import approved, gated
from tidegate.cli.flow.render import whole
from tidegate.errors import FlowRunClosed
from tidegate.flows.client import flow_run
from tidegate.store.flows import runs as store
from tidegate.store.flows import tasks


def failed(hand: Hand, run: int, queue: str) -> int:
    (own,) = hand.claim(queue)
    hand.do(tasks.fail, own, "broken", 0.0, is_final=True)
    assert hand.state(run) == "failed"
    return run


def test_a_signal_that_a_run_failed_with_is_given_again(hand: Hand) -> None:
    run = hand.begin(approved, '"?"')
    hand.complete(hand.claim("approved/ask"), '"?"')
    hand.do(store.signal_flow, run, "act", "false", "a clerk")
    failed(hand, run, "approved/act")
    hand.do(store.signal_flow, run, "act", "true", "a clerk")
    hand.do(store.retry_flow, run)
    (own,) = hand.claim("approved/act")
    assert hand.do(tasks.inputs, own.run, "act")[1] == "true"


def test_a_signal_that_was_used_stays(hand: Hand) -> None:
    run = hand.begin(approved, '"?"')
    hand.complete(hand.claim("approved/ask"), '"?"')
    hand.do(store.signal_flow, run, "act", "true", "a clerk")
    hand.complete(hand.claim("approved/act"), "true")
    with pytest.raises(FlowRunClosed):
        hand.do(store.signal_flow, run, "act", "false", "a clerk")


def test_a_policy_is_changed_before_a_failed_run_is_tried_again(hand: Hand) -> None:
    run, generator = hand.generating()
    hand.spawn(generator, range(2))
    first, _ = hand.claim(ITEMS)
    hand.do(tasks.fail, first, "broken", 0.0, is_final=True)
    assert hand.state(run) == "failed"
    hand.do(store.tolerate, run, "count_up", 1, None)
    assert hand.state(run) == "failed"
    hand.do(store.retry_flow, run)
    again = hand.claim(ITEMS)
    assert len(again) == 2
    hand.do(tasks.fail, again[0], "broken", 0.0, is_final=True)
    assert hand.state(run) == "running"


def test_a_state_of_the_wrong_kind_is_put_right_on_a_failed_run(hand: Hand) -> None:
    run = hand.begin(gated, "5")
    hand.ask("UPDATE tidegate.flow_state SET type = NULL RETURNING 1")  # as earlier releases do
    hand.do(store.set_external_state, run, "offset", '"x"', "a clerk")
    (queue,) = {row[0] for row in hand.ask("SELECT queue FROM tidegate.flow_task")}
    failed(hand, run, queue)
    hand.do(store.set_external_state, run, "offset", "7", "a clerk")
    _, values = hand.do(store.flow_state, run)
    assert values["offset"].json == "7"


def test_a_step_that_waits_for_its_signal_alone_is_reported(hand: Hand) -> None:
    run = hand.begin(approved, '"?"')
    assert flow_run(hand.database, run).inspect().signals == []
    hand.complete(hand.claim("approved/ask"), '"?"')
    assert f"`tidegate flow signal {run} act JSON`" in whole(flow_run(hand.database, run).inspect())
    hand.do(store.signal_flow, run, "act", "true", "a clerk")
    assert flow_run(hand.database, run).inspect().signals == []
