"""Runs are cancelled and paused, workers stop, handlers are late: nothing is lost or stuck."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from threading import Event

import pytest

from tests.integration.flows.calls import QUICKLY, Calls, Start
from tests.integration.flows.conftest import Hand
from tests.integration.flows.declared import gated, numbers
from tests.waiting import wait_until
from tidegate.errors import StateUndeclared
from tidegate.flows import Context, Flow, StepState
from tidegate.flows.client import flow_run, start_flow
from tidegate.flows.worker.task_context import TaskContext
from tidegate.store import Database
from tidegate.store.flows import runs as store
from tidegate.store.flows import tasks as flow_tasks


def test_a_cooperative_handler_notices_that_its_run_is_cancelled(work: Start, hand: Hand) -> None:
    flow, started = Flow("long"), Event()

    @flow.step
    def long(context: Context) -> int:
        started.set()
        wait_until(lambda: context.is_cancelled)
        context.check()
        return 1

    works = work(flow)
    run = start_flow(works.database, flow)
    assert started.wait(30)
    assert hand.do(store.cancel_flow, run.id, "enough").value == "canceling"
    wait_until(lambda: hand.state(run.id) == "canceled")


def test_a_generator_stops_when_its_run_is_cancelled(work: Start, hand: Hand) -> None:
    flow = Flow("endless")

    @flow.generator(batch=10, max_in_flight=100)
    def endless(context: Context) -> Iterator[int]:
        number = 0
        while True:
            yield (number := number + 1)

    @endless.handler
    def handle(context: Context, number: int) -> int:
        return number

    works = work(flow)
    run = start_flow(works.database, flow)
    wait_until(lambda: hand.steps(run.id)["endless"].succeeded > 50)
    hand.do(store.cancel_flow, run.id, "enough")
    wait_until(lambda: hand.state(run.id) == "canceled")
    found = hand.steps(run.id)["endless"]
    assert found.in_flight == 0


def test_a_paused_run_rests_and_goes_on(work: Start, hand: Hand) -> None:
    flow = Flow("endless")
    more = Event()

    @flow.generator(batch=10, flush_every=0.01)
    def stream(context: Context) -> Iterator[int]:
        yield from range(50)
        assert more.wait(30)
        yield from range(50, 100)

    @stream.handler
    def handle(context: Context, number: int) -> int:
        return number

    works = work(flow)
    run = start_flow(works.database, flow)
    wait_until(lambda: hand.steps(run.id)["stream"].succeeded == 50)
    hand.do(store.pause_flow, run.id)
    more.set()
    wait_until(lambda: hand.steps(run.id)["stream"].generating == "complete")
    assert hand.steps(run.id)["stream"].in_flight == 50
    hand.do(store.resume_flow, run.id)
    run.wait(60, works.notifications)
    assert hand.steps(run.id)["stream"].succeeded == 100


def test_a_handler_that_takes_too_long_is_given_up_and_tried_again(work: Start) -> None:
    flow, released = Flow("late"), Event()

    @flow.step(timeout=0.2, retries=1, backoff=QUICKLY)
    def late(context: Context) -> int:
        if context.attempt == 1:
            released.wait(30)
        return context.attempt

    works = work(flow)
    try:
        assert works.give(flow, None, "late") == 2
    finally:
        released.set()


def test_a_handler_is_cancelled_when_another_worker_has_its_task(work: Start, hand: Hand) -> None:
    flow, started, is_told = Flow("taken"), Event(), Event()

    @flow.step
    def taken(context: Context) -> str:
        started.set()
        wait_until(lambda: context.is_cancelled)
        is_told.set()
        return "stale"

    works = work(flow)
    run = start_flow(works.database, flow)
    assert started.wait(30)
    taking = "UPDATE tidegate.flow_task SET epoch = epoch + 1, owner = %s RETURNING 1"
    assert hand.ask(taking, hand.name) == [(1,)]
    assert is_told.wait(20)
    assert hand.state(run.id) == "running"
    assert hand.complete(hand.do(flow_tasks.held_by, hand.name), '"fresh"') == []
    run.wait(60, works.notifications)
    assert run.result("taken") == "fresh"


def test_a_worker_never_runs_more_of_a_step_than_it_may(work: Start, hand: Hand) -> None:
    flow, entered, released = Flow("narrow"), Calls(), Event()

    @flow.generator
    def stream(context: Context) -> Iterator[int]:
        yield from range(40)

    @stream.handler(concurrency=2)
    def handle(context: Context, number: int) -> int:
        entered.note(number)
        assert released.wait(60)
        return number

    works = work(flow, numbers, threads=8)
    run = start_flow(works.database, flow)
    try:
        wait_until(lambda: hand.steps(run.id)["stream"].spawned == 40)
        wait_until(lambda: len(entered.made) >= 2)
        for _ in range(5):  # for the idle threads the worker looks again and again
            other = start_flow(works.database, numbers, 20)
            wait_until(lambda: len(entered.made) > 2 or hand.state(other.id) == "completed")  # noqa: B023  waits here
        assert len(entered.made) == 2
    finally:
        released.set()
    run.wait(60, works.notifications)
    assert len(entered.made) == 40


def test_a_worker_that_drains_lets_another_go_on(work: Start, hand: Hand) -> None:
    flow, going = Flow("handed"), Event()

    @flow.generator(batch=10, flush_every=0.01)
    def stream(context: Context) -> Iterator[int]:
        for number in range(300):
            yield number
            if number == 100:
                going.wait(0.2)

    @stream.handler
    def handle(context: Context, number: int) -> int:
        return number

    first = work(flow)
    run = start_flow(first.database, flow)
    wait_until(lambda: hand.steps(run.id)["stream"].spawned >= 100)
    assert first.worker.drain(30)
    going.set()
    second = work(flow)
    run.wait(60, second.notifications)
    found = hand.steps(run.id)["stream"]
    assert (found.spawned, found.succeeded) == (300, 300)
    losses = "SELECT sum(losses)::integer FROM tidegate.flow_task"
    assert hand.ask(losses) == [(0,)]


def test_a_worker_that_lost_its_lease_registers_again(work: Start, hand: Hand) -> None:
    works = work(numbers, seconds=1.0)
    before = works.worker.name
    hand.ask("DELETE FROM tidegate.lease WHERE key = %s RETURNING 1", before)
    wait_until(lambda: works.worker.name != before)
    assert works.give(numbers, 20, "total") == 380


def test_a_flow_that_lost_a_step_leaves_it_to_workers_that_have_it(work: Start, hand: Hand) -> None:
    old, new = Flow("changing"), Flow("changing")

    for flow in (old, new):

        @flow.step
        def first(context: Context) -> int:
            return 1

    @old.step(depends_on="first")
    def second(context: Context, number: int) -> int:
        return number + 1

    run = start_flow(work(new).database, old)
    wait_until(lambda: hand.steps(run.id)["second"].state is StepState.RUNNING)
    works = work(old)
    run.wait(60, works.notifications)
    assert run.result("second") == 2


def test_handlers_that_give_nothing_are_counted_too(work: Start) -> None:
    flow = Flow("nothing")

    @flow.generator
    def stream(context: Context) -> Iterator[None]:
        yield from [None] * 3

    @stream.handler
    def handle(context: Context, nothing: None) -> None:
        assert nothing is None

    @flow.step(depends_on=stream)
    def count(context: Context, nothings: list[None]) -> int:
        return len(nothings)

    assert work(flow).give(flow, None, "count") == 3


def test_a_claim_whose_answer_was_lost_is_put_back(work: Start, hand: Hand) -> None:
    works = work(numbers)
    run = hand.begin(numbers, "5")
    with hand.database.connect() as connection:
        while not flow_tasks.claim(connection, works.worker.name, {"numbers/count_up": 1}):
            if hand.steps(run)["count_up"].state is StepState.COMPLETED:
                run = hand.begin(numbers, "5")  # the worker was quicker
    flow_run(works.database, run).wait(60, works.notifications)


def test_a_handler_that_ignores_cancellation_does_not_keep_its_run_canceling(
    work: Start, hand: Hand
) -> None:
    flow, started, released = Flow("deaf"), Event(), Event()

    @flow.step
    def deaf(context: Context) -> int:
        started.set()
        released.wait(60)
        return 1

    works = work(flow, threads=1)
    works.worker.grace = 0.1
    run = start_flow(works.database, flow)
    try:
        assert started.wait(30)
        hand.do(store.cancel_flow, run.id, "enough")
        wait_until(lambda: hand.state(run.id) == "canceled")
        other = start_flow(works.database, flow)
    finally:
        released.set()
    other.wait(60, works.notifications)


def test_the_context_is_what_was_promised(database: Database) -> None:
    claim = flow_tasks.Claim("me", 1, -1, 1, "gated/switch", 1, 1, None, None, None)
    context: Context = TaskContext(database, gated.definition, claim)
    assert context.identity == "gated/1/switch/-1"


def test_a_step_reads_what_was_written_as_the_type_that_was_declared(
    hand: Hand, database: Database
) -> None:
    flow = Flow("days")
    seen, due = flow.state("seen", date), flow.state("due", date, external=True)
    flow.state("secret", date, external=True)

    @flow.step(writes=seen, reads=due)
    def look(context: Context) -> None:
        raise NotImplementedError

    run = hand.begin(flow)
    (claim,) = hand.claim("days/look")
    context: Context = TaskContext(database, flow.definition, claim)
    assert (context.get_state(seen), context.get_state(due)) == (None, None)
    context.set_state(seen, date(2025, 3, 1))
    assert context.get_state(seen) == date(2025, 3, 1)
    context.set_state(seen, date(2025, 3, 2))
    flow_run(database, run).set_state(due, date(2025, 4, 1), "a clerk")
    assert (context.get_state("seen"), context.get_state(due)) == (
        date(2025, 3, 2),
        date(2025, 4, 1),
    )
    with pytest.raises(StateUndeclared) as refused:
        context.get_state("secret")
    assert (refused.value.action, refused.value.key) == ("read", "secret")
