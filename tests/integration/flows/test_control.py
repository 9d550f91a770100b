"""Runs begin once, wait for signals, are paused, skipped and cancelled."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.flows.conftest import GENERATOR, ITEMS, Hand
from tests.integration.flows.declared import approved, numbers
from tidegate.errors import (
    ClaimLost,
    FlowRunClosed,
    InvalidFlowValue,
    SignalRefused,
    UnknownFlowRun,
)
from tidegate.flows import Context, Flow, StepState
from tidegate.store.flows import runs as store
from tidegate.store.flows import tasks


def test_the_same_key_is_the_same_run_also_at_the_same_time(hand: Hand) -> None:
    with ThreadPoolExecutor(8) as threads:
        runs = list(threads.map(lambda _: hand.begin(numbers, "1", key="march"), range(16)))
    assert len(set(runs)) == 1
    assert hand.begin(numbers, "1", key="april") not in runs
    assert len(hand.claim(GENERATOR)) == 2


def test_a_run_that_does_not_exist_is_reported(hand: Hand) -> None:
    with pytest.raises(UnknownFlowRun):
        hand.do(store.pause_flow, 404)
    with pytest.raises(UnknownFlowRun):
        hand.do(store.flow_run, 404)


def test_a_step_waits_for_its_signal_which_may_come_before(hand: Hand) -> None:
    run = hand.begin(approved, '"now?"')
    hand.do(store.signal_flow, run, "act", "true", "test")
    hand.do(store.signal_flow, run, "act", "true", "test")
    assert hand.claim("approved/act") == []
    hand.complete(hand.claim("approved/ask"), '"now?"')
    (act,) = hand.claim("approved/act")
    assert hand.do(tasks.inputs, run, "act") == ('"now?"', "true")
    hand.complete([act], '"done"')
    assert hand.state(run) == "completed"


def test_another_signal_and_one_that_no_step_takes_are_refused(hand: Hand) -> None:
    run = hand.begin(approved, '"now?"')
    hand.do(store.signal_flow, run, "act", "true", "test")
    with pytest.raises(SignalRefused, match="another"):
        hand.do(store.signal_flow, run, "act", "false", "test")
    with pytest.raises(SignalRefused, match="takes none"):
        hand.do(store.signal_flow, run, "ask", "true", "test")


def test_a_paused_run_begins_nothing_until_it_is_resumed(hand: Hand) -> None:
    run, generator = hand.generating()
    hand.spawn(generator, range(2))
    (item,) = hand.claim(ITEMS, room=1)
    hand.do(store.pause_flow, run)
    hand.spawn(generator, range(2, 4))
    hand.complete([item], "1")
    assert hand.claim(ITEMS) == []
    hand.do(store.resume_flow, run)
    assert [it.position for it in hand.claim(ITEMS)] == [1, 2, 3]


def test_a_run_that_is_cancelled_ends_when_its_workers_have_let_go(hand: Hand) -> None:
    run, generator = hand.generating()
    hand.spawn(generator, range(3))
    (item,) = hand.claim(ITEMS, room=1)
    assert hand.do(store.cancel_flow, run, "enough").value == "canceling"
    assert hand.do(store.cancel_flow, run, "again").value == "canceling"
    with pytest.raises(FlowRunClosed):
        hand.spawn(generator, range(3, 4))
    assert hand.complete([item], "1") == []
    assert hand.state(run) == "canceling"
    hand.do(tasks.put_back, hand.name, [generator])
    assert hand.state(run) == "canceled"
    found = hand.steps(run)["count_up"]
    assert (found.succeeded, found.canceled, found.in_flight) == (1, 2, 0)
    assert hand.do(store.flow_run, run).cause == "enough"
    assert hand.do(store.cancel_flow, run, "late").value == "canceled"


def test_a_sweep_ends_what_failed_workers_left_canceling(hand: Hand) -> None:
    run, generator = hand.generating()
    hand.spawn(generator, range(3))
    hand.claim(ITEMS, room=1)
    hand.do(store.cancel_flow, run, "enough")
    hand.ask("DELETE FROM tidegate.lease RETURNING 1")
    swept = hand.do(store.sweep_flows)
    assert (swept.freed, swept.ended) == (2, 1)
    assert hand.state(run) == "canceled"


def test_a_closed_run_cannot_be_controlled(hand: Hand) -> None:
    run = hand.begin(approved, '"?"')
    hand.do(store.cancel_flow, run, "enough")
    for steer in (store.pause_flow, store.resume_flow, store.retry_flow):
        with pytest.raises(FlowRunClosed):
            hand.do(steer, run)


def test_a_step_that_requires_a_skipped_step_is_skipped_too(hand: Hand) -> None:
    flow = Flow("skipping")

    @flow.step
    def first(context: Context) -> int:
        return 1

    @flow.step(depends_on=first)
    def needs(context: Context, number: int) -> int:
        return number

    @flow.step(depends_on=first)
    def copes(context: Context, number: int | None) -> int:
        return number or 0

    run = hand.begin(flow)
    (step,) = hand.claim("skipping/first")
    hand.do(tasks.skip, step)
    found = hand.steps(run)
    assert found["needs"].state is StepState.SKIPPED
    hand.complete(hand.claim("skipping/copes"), "0")
    assert hand.state(run) == "completed"


def test_a_step_of_a_map_is_a_list_of_the_results_of_its_items(hand: Hand) -> None:
    flow = Flow("chained")

    @flow.map_step
    def one(context: Context, number: int) -> int:
        return number

    @flow.map_step(depends_on=one)
    def two(context: Context, number: int) -> int:
        return number

    @flow.reduce(two)
    def total(context: Context, numbers: Iterator[int]) -> int:
        return sum(numbers)

    hand.begin(flow, "[3, 4]")
    hand.complete(hand.claim("chained/one"))
    first, second = hand.claim("chained/one[]")
    hand.complete([first], "30")
    hand.complete([second], "40")
    hand.complete(hand.claim("chained/two"))
    assert [it.payload for it in hand.claim("chained/two[]")] == ["30", "40"]


def test_runs_that_were_closed_long_ago_are_forgotten(hand: Hand) -> None:
    closed, is_open = hand.begin(approved, '"?"'), hand.begin(approved, '"?"')
    hand.do(store.cancel_flow, closed, "enough")
    assert hand.do(store.remove_closed_flows, 3600.0) == 0
    assert hand.do(store.remove_closed_flows, 0.0) == 1
    assert [it.id for it in hand.do(store.flow_runs, None)] == [is_open]
    assert hand.ask("SELECT DISTINCT run_id FROM tidegate.flow_task") == [(is_open,)]


def test_a_step_that_is_skipped_takes_its_items_with_it(hand: Hand) -> None:
    run, generator = hand.generating()
    hand.spawn(generator, range(3))
    (at_work,) = hand.claim(ITEMS, room=1)
    hand.do(tasks.put_back, hand.name, [generator])
    (again,) = hand.claim(GENERATOR)
    hand.do(tasks.skip, again)
    assert hand.state(run) == "completed"
    assert hand.claim(ITEMS) == []
    found = hand.steps(run)["count_up"]
    assert (found.state, found.canceled, found.in_flight) == (StepState.SKIPPED, 3, 0)
    (lost,) = hand.complete([at_work], "1")
    assert lost.holder == "canceled"


def test_a_step_that_was_skipped_takes_no_signal(hand: Hand) -> None:
    flow = Flow("unasked")

    @flow.step
    def first(context: Context) -> int:
        return 1

    @flow.step(depends_on=first, signal=bool)
    def act(context: Context, number: int, approval: bool) -> int:
        return number

    @flow.step
    def other(context: Context) -> int:
        return 1

    run = hand.begin(flow)
    hand.do(tasks.skip, hand.claim("unasked/first")[0])
    with pytest.raises(SignalRefused) as refused:
        hand.do(store.signal_flow, run, "act", "true", "test")
    assert refused.value.reason == "it was skipped"


@pytest.mark.parametrize("value", ['"\\u0000"', '"\\ud800"', "1e999999"])
def test_a_value_that_postgresql_cannot_hold_is_refused_by_name(hand: Hand, value: str) -> None:
    with pytest.raises(InvalidFlowValue):
        hand.begin(approved, value)
    run = hand.begin(approved, '"?"')
    with pytest.raises(InvalidFlowValue) as refused:
        hand.do(store.signal_flow, run, "act", value, "test")
    assert refused.value.of == "the signal for step act"
    with pytest.raises(InvalidFlowValue):
        hand.do(store.set_external_state, run, "offset", value, "test")


def test_what_a_deleted_run_had_at_work_is_gone(hand: Hand) -> None:
    run, generator = hand.generating()
    hand.spawn(generator, range(2))
    (item,) = hand.claim(ITEMS, room=1)
    hand.ask("DELETE FROM tidegate.flow_run WHERE id = %s RETURNING 1", run)
    assert hand.ask("SELECT count(*) FROM tidegate.flow_task") == [(0,)]
    assert [lost.holder for lost in hand.complete([item], "1")] == ["gone"]
    for late in (
        lambda: hand.do(tasks.fail, item, "broken", 0.0, is_final=True),
        lambda: hand.do(tasks.suspend, item, ["offset"], 0, 1, 0.0, None),
        lambda: hand.do(tasks.record_gate, item, []),
        lambda: hand.do(tasks.pass_wait, item),
        lambda: hand.do(tasks.skip, generator),
        lambda: hand.do(tasks.finish_generator, generator),
    ):
        with pytest.raises(ClaimLost) as lost:
            late()
        assert lost.value.holder == "gone"
