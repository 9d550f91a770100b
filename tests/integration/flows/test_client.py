"""Beginning runs, and reading what they gave: what is not there is not answered as nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.flows.calls import Start
from tests.integration.flows.conftest import GENERATOR, ITEMS, Hand
from tests.integration.flows.declared import approved, gated, numbers
from tidegate.errors import (
    FlowInputDiffers,
    FlowRedefined,
    InvalidRunKey,
    StepNotCompleted,
    UnknownFlowRun,
    UnknownFlowStep,
)
from tidegate.flows import Context, Flow, Tolerate
from tidegate.flows.client import flow_run, start_flow
from tidegate.store.flows import runs as store
from tidegate.store.flows import tasks

# ── results ──


def test_a_run_that_is_not_there_has_no_results(hand: Hand) -> None:
    with pytest.raises(UnknownFlowRun):
        flow_run(hand.database, 404, numbers).result("total")
    with pytest.raises(UnknownFlowRun):
        flow_run(hand.database, 404, numbers).result("count_up")


def test_a_run_of_another_flow_has_no_results_of_this_one(hand: Hand) -> None:
    run = hand.begin(gated, "5")
    with pytest.raises(UnknownFlowRun) as refused:
        flow_run(hand.database, run, numbers).result("count_up")
    assert refused.value.run == run


def test_steps_that_have_not_completed_report_their_state(hand: Hand) -> None:
    run, generator = hand.generating()
    hand.spawn(generator, range(3))
    hand.complete(hand.claim(ITEMS, room=1), "0")  # some of its items have results
    for step, state in (("count_up", "running"), ("total", "waiting")):
        with pytest.raises(StepNotCompleted) as refused:
            flow_run(hand.database, run, numbers).result(step, timeout=0)
        assert (refused.value.step, refused.value.state) == (step, state)


def test_a_step_that_failed_has_no_result(hand: Hand) -> None:
    run, generator = hand.generating()
    hand.do(tasks.fail, generator, "no source", 0.0, is_final=True)
    with pytest.raises(StepNotCompleted) as refused:
        flow_run(hand.database, run, numbers).result("count_up")
    assert refused.value.state == "failed"


def test_a_step_that_completed_keeps_its_result_when_another_fails(hand: Hand) -> None:
    run = hand.begin(approved, '"?"')
    hand.complete(hand.claim("approved/ask"), '"really?"')
    flow_run(hand.database, run, approved).signal("act", True, "a clerk")
    (act,) = hand.claim("approved/act")
    hand.do(tasks.fail, act, "broken", 0.0, is_final=True)
    assert flow_run(hand.database, run, approved).result("ask") == "really?"


def test_a_skipped_step_gave_what_those_behind_it_were_given(work: Start) -> None:
    flow = Flow("skipping")

    @flow.step(condition=lambda _: False)
    def maybe(context: Context, value: int) -> int:
        raise NotImplementedError

    @flow.generator(condition=lambda _: False)
    def some(context: Context, value: int) -> Iterator[int]:
        raise NotImplementedError

    @some.handler
    def each(context: Context, item: int) -> int:
        raise NotImplementedError

    @flow.step(depends_on=maybe)
    def last(context: Context, value: int | None) -> str:
        return repr(value)

    works = work(flow)
    run = works.finish(flow, 5)
    assert run.result(last) == "None"
    assert run.result(maybe) is None
    assert list(run.result(some)) == []


def test_tolerated_failures_have_no_results(work: Start) -> None:
    flow = Flow("bearing")

    @flow.map_step(on_fail=Tolerate(count=1))
    def halve(context: Context, number: int) -> int:
        if number % 2:
            raise ValueError(number)
        return number // 2

    works = work(flow)
    assert list(works.give(flow, [2, 3, 4], "halve")) == [1, 2]


def test_a_step_that_the_run_has_otherwise_is_not_read(hand: Hand) -> None:
    other = Flow("numbers")

    @other.step
    def count_up(context: Context, last: int) -> int:
        return last

    @other.step(depends_on=count_up)
    def added(context: Context, last: int) -> int:
        return last

    run = hand.begin(numbers, "5")
    for step in (count_up, added):
        with pytest.raises(FlowRedefined):
            flow_run(hand.database, run, other).result(step)
    with pytest.raises(UnknownFlowStep):
        flow_run(hand.database, run, numbers).result("nothing")


# ── beginning ──


def test_the_same_key_with_the_same_input_is_the_same_run(hand: Hand) -> None:
    run = start_flow(hand.database, numbers, 5, key="march")
    assert start_flow(hand.database, numbers, 5, key="march").id == run.id
    assert hand.begin(numbers, "5.0", key="march") == run.id  # the same number


def test_the_same_key_with_another_input_is_refused(hand: Hand) -> None:
    run = start_flow(hand.database, numbers, 5, key="march")
    with pytest.raises(FlowInputDiffers) as refused:
        start_flow(hand.database, numbers, 6, key="march")
    assert (refused.value.run, refused.value.flow, refused.value.key) == (
        run.id,
        "numbers",
        "march",
    )
    assert [it.id for it in hand.do(store.flow_runs, "numbers")] == [run.id]
    assert start_flow(hand.database, numbers, 6, key="april").id != run.id


def test_inputs_are_compared_as_values_and_not_as_texts(hand: Hand) -> None:
    flow = Flow("ordered")

    @flow.step
    def only(context: Context, value: dict[str, int]) -> int:
        return len(value)

    run = start_flow(hand.database, flow, {"a": 1, "b": 2}, key="march")
    assert start_flow(hand.database, flow, {"b": 2, "a": 1}, key="march").id == run.id


@pytest.mark.parametrize("key", [5, "", b"march", "a\0b", "\udcff", "x" * 10_000], ids=repr)
def test_a_key_that_cannot_be_one_is_refused(hand: Hand, key: object) -> None:
    with pytest.raises(InvalidRunKey) as refused:
        start_flow(hand.database, numbers, 5, key=key)  # type: ignore[arg-type]
    assert refused.value.flow == "numbers"
    assert hand.do(store.flow_runs, None) == []


def test_a_long_key_that_does_not_repeat_itself_is_held(hand: Hand) -> None:
    key = "".join(chr(0x4E00 + at) for at in range(666))  # 3 bytes each, and hard to compress
    assert (
        start_flow(hand.database, numbers, 5, key=key).id
        == start_flow(hand.database, numbers, 5, key=key).id
    )


# ── signals ──


def test_a_signal_for_an_unknown_step_is_refused(hand: Hand) -> None:
    run = start_flow(hand.database, approved, "?")
    with pytest.raises(UnknownFlowStep) as refused:
        run.signal("nostep", True, "a clerk")
    assert refused.value.step == "nostep"


def test_a_signal_for_a_run_of_another_flow_is_refused(hand: Hand) -> None:
    run = hand.begin(numbers, "5")
    with pytest.raises(UnknownFlowRun):
        flow_run(hand.database, run, approved).signal("act", True, "a clerk")


def test_results_are_there_once_the_run_was_waited_for(work: Start, hand: Hand) -> None:
    works = work(numbers)
    run = start_flow(works.database, numbers, 5)
    run.wait(60, works.notifications)
    assert list(run.result("count_up")) == [0, 2, 4, 6, 8]
    assert hand.claim(GENERATOR) == []
