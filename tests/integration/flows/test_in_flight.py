"""What a worker has in hand is at work or soon will be; what is not, others get."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event

import pytest

from tests.integration.flows.calls import Calls, Start
from tests.integration.flows.conftest import Hand
from tests.integration.flows.declared import numbers
from tests.waiting import wait_until
from tidegate.errors import DuplicateName
from tidegate.flows import Context, Flow, Tolerate
from tidegate.flows.client import start_flow
from tidegate.flows.model.options import HandlerOptions


def hanging_from(first: int, every: int, hung: Calls, released: Event, **how: object) -> Flow:
    """Quick items, and after a while some among them that take as long as a test wants."""
    flow = Flow("mixed")

    @flow.generator(batch=1000, on_fail=Tolerate(count=5))
    def stream(context: Context, last: int) -> Iterator[int]:
        yield from range(last)

    @stream.handler(**HandlerOptions(**how))  # type: ignore[typeddict-item]
    def handle(context: Context, number: int) -> int:
        if number >= first and number % every == 0:
            hung.note(number)
            assert released.wait(60)
        return number

    return flow


@pytest.mark.parametrize("how", [{}, {"timeout": 0.5}])
def test_what_waits_behind_a_handler_that_hangs_is_done_by_others(
    work: Start, hand: Hand, how: dict[str, object]
) -> None:
    hung, released = Calls(), Event()
    flow = hanging_from(150, 250, hung, released, **how)
    try:
        run = start_flow(work(flow, threads=1).database, flow, 400)
        wait_until(lambda: bool(hung.made))
        work(flow, threads=2)
        wait_until(lambda: hand.steps(run.id)["stream"].in_flight <= 1)
    finally:
        released.set()
    run.wait(60)


def test_a_worker_whose_threads_are_all_at_long_items_has_no_others(
    work: Start, hand: Hand
) -> None:
    hung, released = Calls(), Event()
    flow = hanging_from(100, 20, hung, released)
    claimed = "SELECT count(*) FROM tidegate.flow_task WHERE state = 'claimed' AND position >= 0"
    try:
        run = start_flow(work(flow, numbers, threads=2).database, flow, 300)
        wait_until(lambda: len(hung.made) == 2)
        wait_until(lambda: hand.ask(claimed) == [(2,)])
        other = start_flow(hand.database, numbers, 5)  # for which the worker looks again
        wait_until(lambda: hand.steps(other.id)["count_up"].generating == "complete")
        assert hand.ask(claimed) == [(2,)]
        work(flow, numbers, threads=16)
        wait_until(lambda: hand.steps(run.id)["stream"].succeeded == 290)
        assert len(hung.made) == 10
    finally:
        released.set()
    run.wait(60)


def test_a_handler_that_was_given_up_counts_until_it_has_ended(work: Start, hand: Hand) -> None:
    flow, entered, released = Flow("narrow"), Calls(), Event()

    @flow.map_step(concurrency=1, timeout=0.3, on_fail=Tolerate(share=1.0))
    def deaf(context: Context, number: int) -> int:
        entered.note(number)
        assert released.wait(60)
        return number

    works = work(flow, numbers)
    run = start_flow(works.database, flow, [1, 2])
    try:
        wait_until(lambda: hand.steps(run.id)["deaf"].failed == 1)
        for _ in range(3):  # for the idle threads the worker looks again and again
            works.finish(numbers, 5)
        assert len(entered.made) == 1
    finally:
        released.set()
    run.wait(60, works.notifications)
    assert len(entered.made) == 2


def test_two_flows_of_one_name_are_refused(work: Start) -> None:
    flows = [Flow("same"), Flow("same")]
    with pytest.raises(DuplicateName) as refused:
        work(*flows)
    assert (refused.value.kind, refused.value.name) == ("flow", "same")
    assert (refused.value.first, refused.value.at) == (flows[0].at, flows[1].at)


def test_a_flow_may_be_named_twice(work: Start) -> None:
    assert work(numbers, numbers).give(numbers, 3, "total") == 6
