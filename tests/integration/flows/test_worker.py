"""A worker performs flows as they are declared: steps, items, retries, signals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from threading import Event

import pytest

from tests.integration.flows.calls import QUICKLY, Calls, Start
from tests.integration.flows.conftest import Hand
from tests.integration.flows.declared import approved, numbers
from tests.waiting import wait_until
from tidegate.errors import FlowFailed, FlowTimeout
from tidegate.flows import Backoff, Context, FinalFailure, Flow, StepState, Tolerate
from tidegate.flows.client import flow_run, start_flow
from tidegate.store.flows.tasks import finish_generator


@dataclass(frozen=True)
class Order:
    number: int
    day: date


def test_a_generator_its_handler_and_a_reduce_run_to_the_end(work: Start, hand: Hand) -> None:
    works = work(numbers)
    run = works.finish(numbers, 1234)
    assert run.result("total") == 1234 * 1233
    assert list(run.result("count_up"))[:3] == [0, 2, 4]
    found = hand.steps(run.id)["count_up"]
    assert (found.generating, found.spawned, found.succeeded) == ("complete", 1234, 1234)


def test_an_empty_stream_gives_an_empty_result(work: Start) -> None:
    works = work(numbers)
    assert works.give(numbers, 0, "total") == 0


def test_a_final_failure_is_not_retried(work: Start) -> None:
    flow, calls = Flow("hopeless"), Calls()

    @flow.step(retries=5, backoff=QUICKLY)
    def read(context: Context, address: str) -> str:
        calls.note(address)
        raise FinalFailure(f"{address} is gone")

    works = work(flow)
    run = start_flow(works.database, flow, "page-7")
    with pytest.raises(FlowFailed, match="page-7 is gone"):
        run.wait(30)
    assert calls.made == ["page-7"]


def test_only_generators_save_cursors(work: Start) -> None:
    flow = Flow("cursors")

    @flow.step(retries=5)
    def read(context: Context) -> None:
        context.save_cursor(7)

    works = work(flow)
    run = start_flow(works.database, flow)
    with pytest.raises(FlowFailed, match="CursorRefused"):
        run.wait(30)


def test_values_keep_their_types_from_step_to_step(work: Start) -> None:
    flow = Flow("orders")

    @flow.step
    def read(context: Context, day: date) -> list[Order]:
        return [Order(1, day), Order(2, day)]

    @flow.map_step(depends_on=read)
    def check(context: Context, order: Order) -> Order:
        assert isinstance(order.day, date)
        return order

    @flow.step(depends_on=check)
    def gather(context: Context, orders: list[Order]) -> dict[int, date]:
        return {it.number: it.day for it in orders}

    day = date(2025, 3, 1)
    assert work(flow).give(flow, day, "gather") == {1: day, 2: day}


def test_a_failing_handler_is_tried_again_until_it_succeeds(work: Start) -> None:
    flow, calls = Flow("flaky"), Calls()

    @flow.step(retries=3, backoff=QUICKLY)
    def flaky(context: Context) -> int:
        if calls.note("call") < 3:
            raise ValueError("not yet")
        return context.attempt

    assert work(flow).give(flow, None, "flaky") == 3


def test_a_failing_handler_is_left_alone_for_a_while_before_it_is_tried_again(
    work: Start, hand: Hand
) -> None:
    flow = Flow("patient")

    @flow.step(retries=1, backoff=Backoff(first=3600, longest=3600))
    def patient(context: Context) -> int:
        raise ValueError("not yet")

    run = start_flow(work(flow).database, flow)
    wait_until(lambda: hand.steps(run.id)["patient"].last_error is not None)
    found = "SELECT state, attempts, available_at - now() FROM tidegate.flow_task"
    ((state, attempts, ahead),) = hand.ask(found)
    assert (state, attempts) == ("ready", 1)
    assert timedelta(minutes=28) < ahead <= timedelta(hours=1)


def test_items_are_handled_as_soon_as_they_are_spawned_without_polling(
    work: Start, hand: Hand
) -> None:
    run, generator = hand.generating()
    works = work(numbers, look_every=600.0)
    for number in range(5):
        hand.spawn(generator, range(number, number + 1))
        wait_until(lambda: hand.steps(run)["count_up"].succeeded > number, 10.0)  # noqa: B023  waits here
        wait_until(lambda: works.worker.in_flight_count == 0)
    hand.do(finish_generator, generator)
    flow_run(works.database, run).wait(60, works.notifications)
    assert flow_run(works.database, run, numbers).result("total") == 20


def test_a_run_fails_with_its_first_cause(work: Start, hand: Hand) -> None:
    flow, calls = Flow("broken"), Calls()

    @flow.step(retries=2, backoff=QUICKLY)
    def broken(context: Context) -> int:
        raise ValueError(f"cause {calls.note('call')}")

    works = work(flow)
    with pytest.raises(FlowFailed) as failed:
        works.finish(flow)
    assert failed.value.cause.startswith("step broken: ValueError: cause 1 (test_worker.py:")
    assert len(calls.made) == 3
    last = hand.steps(failed.value.run)["broken"].last_error or ""
    assert last.startswith("ValueError: cause 3 (")


def test_a_generator_that_fails_fails_the_run_with_its_error(work: Start, hand: Hand) -> None:
    flow = Flow("broken")

    @flow.generator
    def count_up(context: Context) -> Iterator[int]:
        yield 1
        raise OSError("the source is gone")

    @count_up.handler
    def handle(context: Context, number: int) -> int:
        return number

    works = work(flow)
    with pytest.raises(FlowFailed, match="the source is gone"):
        works.finish(flow)
    assert hand.ask("SELECT generating FROM tidegate.flow_step") == [("failed",)]


def test_failures_within_tolerance_are_summarised(work: Start, hand: Hand) -> None:
    flow = Flow("tolerant")

    @flow.generator(on_fail=Tolerate(share=0.5))
    def count_up(context: Context) -> Iterator[int]:
        yield from range(10)

    @count_up.handler
    def odd(context: Context, number: int) -> int:
        if number % 2 == 0:
            raise ValueError(number)
        return number

    @flow.reduce(count_up)
    def total(context: Context, numbers: Iterator[int]) -> int:
        return sum(numbers)

    works = work(flow)
    run = works.finish(flow)
    assert run.result("total") == 25
    found = hand.steps(run.id)["count_up"]
    assert (found.succeeded, found.failed) == (5, 5)


def test_what_a_function_gives_that_is_not_of_its_type_is_a_failure(work: Start) -> None:
    flow, calls = Flow("wrong"), Calls()

    @flow.step(retries=5)
    def wrong(context: Context) -> int:
        calls.note("call")
        return "seven"  # type: ignore[return-value]  # that is the mistake

    with pytest.raises(FlowFailed, match="InvalidFlowValue"):
        work(flow).finish(flow)
    assert len(calls.made) == 1


def test_handlers_start_while_a_slow_generator_still_yields(work: Start) -> None:
    flow, handled = Flow("slow"), Event()

    @flow.generator(batch=1000, flush_every=0.05)
    def slow(context: Context) -> Iterator[int]:
        yield 1
        assert handled.wait(30), "the first item was handled only at the end"
        yield 2

    @slow.handler
    def handle(context: Context, number: int) -> int:
        handled.set()
        return number

    run = work(flow).finish(flow)
    assert run.id


def test_a_generator_waits_when_its_handlers_fall_behind(work: Start, hand: Hand) -> None:
    flow, released, yielded = Flow("ahead"), Event(), Calls()

    @flow.generator(batch=5, max_in_flight=12, flush_every=0.01)
    def ahead(context: Context) -> Iterator[int]:
        for number in range(200):
            yielded.note(number)
            yield number

    @ahead.handler
    def handle(context: Context, number: int) -> int:
        assert released.wait(30)
        return number

    works = work(flow, threads=1)
    run = start_flow(works.database, flow)
    wait_until(lambda: hand.steps(run.id)["ahead"].spawned >= 12)
    most = 12 + 2 * 5 + 1
    wait_until(lambda: len(yielded.made) >= 20)
    assert len(yielded.made) <= most
    assert hand.steps(run.id)["ahead"].in_flight == 12
    released.set()
    run.wait(60, works.notifications)
    assert hand.steps(run.id)["ahead"].spawned == 200


def test_items_with_keys_are_handled_once_each(work: Start) -> None:
    flow, calls = Flow("keyed"), Calls()

    @flow.generator(key=str)
    def words(context: Context) -> Iterator[str]:
        yield from ["a", "b", "a", "c", "b"]

    @words.handler
    def handle(context: Context, word: str) -> str:
        calls.note(word)
        return word

    works = work(flow)
    assert list(works.give(flow, None, "words")) == ["a", "b", "c"]
    assert sorted(map(str, calls.made)) == ["a", "b", "c"]


def test_a_generator_goes_on_from_its_cursor_when_it_is_tried_again(work: Start) -> None:
    flow, calls = Flow("cursor"), Calls()

    @flow.generator(retries=1, backoff=QUICKLY)
    def pages(context: Context) -> Iterator[int]:
        first = context.cursor or 0
        calls.note(("from", first))
        for page in range(first, 4):
            yield from (10 * page + number for number in range(3))
            context.save_cursor(page + 1)
            if page == 1 and context.attempt == 1:
                raise OSError("gone")

    @pages.handler
    def handle(context: Context, number: int) -> int:
        return number

    works = work(flow)
    expected = [10 * page + number for page in range(4) for number in range(3)]
    assert list(works.give(flow, None, "pages")) == expected
    assert calls.made == [("from", 0), ("from", 2)]


def test_a_condition_that_does_not_hold_skips_the_step(work: Start, hand: Hand) -> None:
    flow = Flow("conditional")

    @flow.step
    def number(context: Context, given: int) -> int:
        return given

    @flow.step(depends_on=number, condition=lambda it: it > 10)
    def large(context: Context, number: int) -> str:
        return "large"

    @flow.step(depends_on=large)
    def report(context: Context, size: str | None) -> str:
        return size or "small"

    works = work(flow)
    assert works.give(flow, 11, "report") == "large"
    run = works.finish(flow, 3)
    assert run.result("report") == "small"
    assert hand.steps(run.id)["large"].state is StepState.SKIPPED


def test_a_step_waits_for_its_signal(work: Start, hand: Hand) -> None:
    works = work(approved)
    run = start_flow(works.database, approved, "really?")
    wait_until(lambda: hand.steps(run.id)["ask"].state is StepState.COMPLETED)
    with pytest.raises(FlowTimeout):
        run.wait(0.1, works.notifications)
    run.signal("act", True, "test")
    run.wait(60, works.notifications)
    assert run.result("act") == "really? True"
