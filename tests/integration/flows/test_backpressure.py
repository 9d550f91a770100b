"""A generator that waits for its handlers: for nothing else, and without being in the way."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event

import pytest

from tests.integration.flows.calls import Start
from tests.integration.flows.conftest import Hand
from tests.waiting import wait_until
from tidegate.errors import FlowFailed
from tidegate.flows import Context, Flow
from tidegate.flows.client import start_flow
from tidegate.flows.worker.executor import TaskExecutor, TaskFailed
from tidegate.flows.worker.in_flight import GENERATORS
from tidegate.flows.worker.task_context import TaskContext
from tidegate.store.flows import tasks as flow_tasks


def narrow(released: Event, name: str = "narrow", timeout: float = 600.0) -> Flow:
    """Three items at a time, which wait for a test."""
    flow = Flow(name)

    @flow.generator(max_in_flight=3, batch=3, timeout=timeout)
    def stream(context: Context) -> Iterator[int]:
        yield from range(30)

    @stream.handler
    def handle(context: Context, number: int) -> int:
        assert released.wait(60)
        return number

    return flow


def generator_is(hand: Hand, run: int, state: str) -> bool:
    asked = "SELECT state FROM tidegate.flow_task WHERE run_id = %s AND position = -1"
    return hand.ask(asked, run) == [(state,)]


def test_waiting_for_handlers_does_not_count_towards_the_timeout(work: Start, hand: Hand) -> None:
    released, late = Event(), Flow("late")
    flow = narrow(released, timeout=1.0)

    @late.step(timeout=1.0)
    def too_late(context: Context) -> None:
        wait_until(lambda: context.is_cancelled)

    works = work(flow, late)
    try:
        run = start_flow(works.database, flow)
        wait_until(lambda: hand.steps(run.id)["stream"].spawned == 3)
        with pytest.raises(FlowFailed):  # so the generator has waited for longer as well
            works.finish(late)
        assert generator_is(hand, run.id, "claimed")
    finally:
        released.set()
    run.wait(60, works.notifications)
    assert list(run.result("stream")) == list(range(30))


def test_generators_of_paused_runs_do_not_keep_others_from_their_threads(
    work: Start, hand: Hand
) -> None:
    paused, at_once = Event(), Event()
    at_once.set()
    first, second = narrow(paused, "first"), narrow(at_once, "second")
    works = work(first, second, threads=GENERATORS * 3 + 1)
    runs = [start_flow(works.database, first) for _ in range(GENERATORS)]
    try:
        wait_until(lambda: all(hand.steps(run.id)["stream"].spawned == 3 for run in runs))
        for run in runs:
            run.pause()
        works.finish(second)
        wait_until(lambda: all(generator_is(hand, run.id, "held") for run in runs))
    finally:
        paused.set()
    for run in runs:
        run.resume()
        run.wait(60, works.notifications)
        assert list(run.result("stream")) == list(range(30))


def test_what_a_generator_fails_with_is_reported_although_its_items_wait(work: Start) -> None:
    flow, released = Flow("gone"), Event()

    @flow.generator(max_in_flight=1, batch=1)
    def stream(context: Context) -> Iterator[int]:
        yield from (1, 2)
        raise ConnectionError("the source is gone")

    @stream.handler
    def handle(context: Context, number: int) -> int:
        wait_until(lambda: context.is_cancelled or released.is_set())
        return number

    works = work(flow)
    try:
        run = start_flow(works.database, flow)
        with pytest.raises(FlowFailed) as failed:
            run.wait(20, works.notifications)
        assert "the source is gone" in failed.value.cause
    finally:
        released.set()


def test_a_worker_that_drains_spawns_no_more_than_may_be_in_flight(work: Start, hand: Hand) -> None:
    released = Event()
    flow = narrow(released)
    first = work(flow, threads=1)
    run = start_flow(first.database, flow)
    try:
        wait_until(lambda: hand.steps(run.id)["stream"].spawned == 3)
        first.worker.drain(0.1)
        wait_until(lambda: generator_is(hand, run.id, "ready"))
        assert hand.steps(run.id)["stream"].spawned == 3
    finally:
        released.set()
    second = work(flow)
    run.wait(60, second.notifications)
    assert list(run.result("stream")) == list(range(30))


def test_what_was_yielded_before_an_error_is_kept_with_its_cursor(hand: Hand) -> None:
    flow = Flow("flaky")

    @flow.generator(flush_every=600.0, max_in_flight=4)
    def stream(context: Context) -> Iterator[int]:
        for number in range(3):
            yield number
            context.save_cursor(number + 1)
        raise ConnectionError("the source is gone")

    @stream.handler
    def handle(context: Context, number: int) -> int:
        return number

    run = hand.begin(flow)
    (claim,) = hand.claim("flaky/stream")
    outcome = TaskExecutor(hand.database).execute(
        TaskContext(hand.database, flow.definition, claim)
    )
    assert isinstance(outcome, TaskFailed)
    place = hand.do(flow_tasks.generator_position, claim.step_id)
    assert (place.spawned, place.cursor, place.cursor_position) == (3, "3", 3)
    assert hand.steps(run)["stream"].generating == "started"
