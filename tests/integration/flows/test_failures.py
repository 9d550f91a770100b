"""Failures are tried again, borne, or fail the run with their first cause."""

from __future__ import annotations

import pytest

from tests.integration.flows.conftest import GENERATOR, ITEMS, Hand
from tidegate.errors import (
    FlowRunClosed,
    NoStepWithItems,
)
from tidegate.flows import Context, Flow, StepState, Tolerate
from tidegate.store.flows import runs as store
from tidegate.store.flows import tasks


def tolerant(policy: Tolerate) -> Flow:
    flow = Flow("tolerant")

    @flow.step
    def listed(context: Context, last: int) -> list[int]:
        return []

    @flow.map_step(depends_on=listed, on_fail=policy)
    def each(context: Context, number: int) -> int:
        return number

    return flow


def test_a_failed_attempt_is_tried_again_and_the_first_cause_is_kept(hand: Hand) -> None:
    run, generator = hand.generating()
    hand.spawn(generator, range(1))
    for error, becomes in [("first", "ready"), ("second", "ready"), ("third", "failed")]:
        (item,) = hand.claim(ITEMS)
        assert hand.do(tasks.fail, item, error, 0.0, is_final=False) == becomes
    assert hand.state(run) == "failed"
    assert hand.do(store.flow_run, run).cause == "step count_up: item 0: first"
    assert hand.steps(run)["count_up"].last_error == "third"
    assert hand.steps(run)["total"].state is StepState.CANCELED


def test_a_pause_between_attempts_is_kept(hand: Hand) -> None:
    _, generator = hand.generating()
    hand.spawn(generator, range(1))
    (item,) = hand.claim(ITEMS)
    hand.do(tasks.fail, item, "busy", 3600.0, is_final=False)
    assert hand.claim(ITEMS) == []


def test_what_a_failed_run_still_has_at_work_is_refused(hand: Hand) -> None:
    _, generator = hand.generating()
    hand.spawn(generator, range(2))
    first, second = hand.claim(ITEMS)
    hand.do(tasks.fail, first, "broken", 0.0, is_final=True)
    (lost,) = hand.complete([second], "1")
    assert lost.holder == "canceled"
    with pytest.raises(FlowRunClosed):
        hand.spawn(generator, range(2, 3))


def test_a_failed_run_that_is_tried_again_does_only_what_is_missing(hand: Hand) -> None:
    run, generator = hand.generating()
    hand.spawn(generator, range(3))
    items = hand.claim(ITEMS)
    hand.complete(items[:1], "1")
    hand.do(tasks.fail, items[1], "broken", 0.0, is_final=True)
    hand.do(store.retry_flow, run)
    assert hand.state(run) == "running"
    (generator,) = hand.claim(GENERATOR)
    hand.do(tasks.finish_generator, generator)
    again = hand.claim(ITEMS)
    assert [(it.position, it.attempt) for it in again] == [(1, 1), (2, 1)]
    hand.complete(again, "1")
    assert hand.steps(run)["count_up"].state is StepState.COMPLETED
    assert hand.steps(run)["count_up"].succeeded == 3


def test_a_run_that_did_not_fail_is_not_tried_again(hand: Hand) -> None:
    run, generator = hand.generating()
    hand.do(store.retry_flow, run)
    hand.do(tasks.finish_generator, generator)
    hand.complete(hand.claim("numbers/total"), "0")
    with pytest.raises(FlowRunClosed):
        hand.do(store.retry_flow, run)


def test_tolerated_failures_end_in_a_summary(hand: Hand) -> None:
    run = hand.begin(tolerant(Tolerate(count=1)), "3")
    hand.complete(hand.claim("tolerant/listed"), "[1, 2, 3]")
    hand.complete(hand.claim("tolerant/each"))
    first, *others = hand.claim("tolerant/each[]")
    hand.do(tasks.fail, first, "broken", 0.0, is_final=True)
    assert hand.state(run) == "running"
    hand.complete(others, "1")
    assert hand.state(run) == "completed"
    found = hand.do(store.step_result, run, "each")
    assert found is not None
    assert found.json == (
        '{"failed": 1, "running": 0, "canceled": 0, "expected": 3, "succeeded": 2}'
    )


def test_more_failures_than_tolerated_fail_the_run_at_once(hand: Hand) -> None:
    run = hand.begin(tolerant(Tolerate(count=1)), "3")
    hand.complete(hand.claim("tolerant/listed"), "[1, 2, 3]")
    hand.complete(hand.claim("tolerant/each"))
    for item in hand.claim("tolerant/each[]")[:2]:
        hand.do(tasks.fail, item, f"broken {item.position}", 0.0, is_final=True)
    assert hand.state(run) == "failed"
    assert hand.do(store.flow_run, run).cause == (
        "step each: item 0: broken 0"
        " (the first of 2 failures in 3 items, which is more than tolerated)"
    )


def test_tolerance_can_be_changed_while_the_step_runs(hand: Hand) -> None:
    run = hand.begin(tolerant(Tolerate(count=0)), "3")
    hand.complete(hand.claim("tolerant/listed"), "[1, 2]")
    hand.complete(hand.claim("tolerant/each"))
    hand.do(store.tolerate, run, "each", None, 1.0)
    for item in hand.claim("tolerant/each[]"):
        hand.do(tasks.fail, item, "broken", 0.0, is_final=True)
    assert hand.state(run) == "completed"


def test_a_map_step_over_nothing_completes(hand: Hand) -> None:
    run = hand.begin(tolerant(Tolerate(share=0.0)), "0")
    hand.complete(hand.claim("tolerant/listed"), "[]")
    hand.complete(hand.claim("tolerant/each"))
    assert hand.state(run) == "completed"


def test_a_task_with_which_workers_fail_repeatedly_fails(hand: Hand) -> None:
    run, generator = hand.generating()
    hand.spawn(generator, range(1))
    hand.do(tasks.finish_generator, generator)
    for _ in range(11):
        hand.ask("UPDATE tidegate.flow_task SET available_at = now() RETURNING 1")
        hand.claim(ITEMS)
        hand.ask("DELETE FROM tidegate.lease RETURNING 1")
        hand.do(store.sweep_flows)
    assert hand.state(run) == "failed"
    cause = hand.do(store.flow_run, run).cause
    assert cause is not None
    assert "workers were lost with it 11 times" in cause


def test_tolerance_of_a_step_without_items_is_refused(hand: Hand) -> None:
    run, _ = hand.generating()
    with pytest.raises(NoStepWithItems):
        hand.do(store.tolerate, run, "total", 1, None)


def two_maps() -> Flow:
    """A step whose failures are known at its end, and another beside it."""
    flow = Flow("pair")

    @flow.map_step(on_fail=Tolerate(share=0.1))
    def left(context: Context, number: int) -> int:
        return number

    @flow.map_step
    def right(context: Context, number: int) -> int:
        return number

    return flow


def test_a_step_that_was_done_by_the_call_that_failed_its_run_completes_when_it_is_tried_again(
    hand: Hand,
) -> None:
    run = hand.begin(two_maps(), "[1, 2]")
    hand.complete(hand.claim("pair/left", "pair/right"))
    left, right = hand.claim("pair/left[]"), hand.claim("pair/right[]")
    hand.do(tasks.fail, left[0], "broken", 0.0, is_final=True)
    hand.complete([left[1], *right])
    assert hand.state(run) == "failed"
    hand.do(store.retry_flow, run)
    assert hand.steps(run)["right"].state is StepState.COMPLETED
    hand.complete(hand.claim("pair/left[]"))
    assert hand.state(run) == "completed"


def test_a_step_without_items_completes_when_its_failed_run_is_tried_again(hand: Hand) -> None:
    flow = two_maps()

    @flow.step
    def listed(context: Context, numbers: list[int]) -> list[int]:
        return []

    @flow.map_step(depends_on=listed)
    def empty(context: Context, number: int) -> int:
        return number

    run = hand.begin(flow, "[1, 2]")
    hand.complete(hand.claim("pair/listed"), "[]")
    hand.complete(hand.claim("pair/left", "pair/right"))
    hand.complete(hand.claim("pair/right[]"))
    first, second = hand.claim("pair/left[]")
    hand.do(tasks.fail, first, "broken", 0.0, is_final=True)
    hand.complete([second, *hand.claim("pair/empty")])
    assert hand.state(run) == "failed"
    hand.do(store.retry_flow, run)
    hand.complete(hand.claim("pair/left[]"))
    assert hand.state(run) == "completed"


def test_an_tolerated_item_is_not_the_cause_when_its_generator_fails(hand: Hand) -> None:
    run, generator = hand.generating()
    hand.do(store.tolerate, run, "count_up", 5, None)
    hand.spawn(generator, range(2))
    hand.do(tasks.fail, hand.claim(ITEMS)[0], "borne", 0.0, is_final=True)
    hand.do(tasks.fail, generator, "the source is gone", 0.0, is_final=True)
    assert hand.do(store.flow_run, run).cause == "step count_up: the source is gone"


@pytest.mark.parametrize(("share", "failed"), [(0.29, 29), (0.57, 57), (0.58, 58)])
def test_a_share_is_compared_by_its_decimal_digits(hand: Hand, share: float, failed: int) -> None:
    run = hand.begin(tolerant(Tolerate(share=share)), "0")
    hand.complete(hand.claim("tolerant/listed"), str([1] * 100))
    hand.complete(hand.claim("tolerant/each"))
    items = hand.claim("tolerant/each[]")
    for item in items[:failed]:
        hand.do(tasks.fail, item, "broken", 0.0, is_final=True)
    hand.complete(items[failed:])
    assert hand.state(run) == "completed"


@pytest.mark.parametrize("pause", [1e300, float("inf")])
def test_a_pause_is_kept_that_no_calendar_has(hand: Hand, pause: float) -> None:
    _, generator = hand.generating()
    hand.spawn(generator, range(1))
    (item,) = hand.claim(ITEMS)
    assert hand.do(tasks.fail, item, "busy", pause, is_final=False) == "ready"
    assert hand.claim(ITEMS) == []
