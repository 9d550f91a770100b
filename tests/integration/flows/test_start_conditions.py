"""What has to hold before a step begins is asked before it begins; and what its context is for."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Barrier

import pytest

from tests.integration.flows.calls import Start
from tests.integration.flows.conftest import Hand
from tests.waiting import wait_until
from tidegate.flows import Context, Flow, StepState
from tidegate.flows.client import start_flow
from tidegate.flows.worker.executor import TaskExecutor, TaskFailed, TaskOutcome, TaskSettled
from tidegate.flows.worker.task_context import TaskContext
from tidegate.flows.worker.worker import FlowWorker
from tidegate.store import Connection, Database, Notifications
from tidegate.store.flows import runs as store
from tidegate.store.flows import tasks as flow_tasks


def perform(hand: Hand, flow: Flow, step: str) -> TaskOutcome:
    (claim,) = hand.claim(f"{flow.name}/{step}")
    outcome = TaskExecutor(hand.database).execute(
        TaskContext(hand.database, flow.definition, claim)
    )
    if isinstance(outcome, TaskFailed):
        hand.do(flow_tasks.fail, claim, outcome.error, 0.0, is_final=outcome.is_final)
    return outcome


def test_a_generator_that_has_begun_does_not_evaluate_its_condition_again(hand: Hand) -> None:
    flow, is_wanted = Flow("once"), [True, False]
    is_open = flow.state("is_open", bool, external=True)

    @flow.generator(
        retries=1,
        condition=lambda _: is_wanted.pop(0),
        wait_for=lambda it: it[is_open],
        reads=is_open,
    )
    def stream(context: Context, last: int) -> Iterator[int]:
        yield from range(last)
        if context.attempt == 1:
            raise ConnectionError("the source is gone")

    @stream.handler
    def handle(context: Context, number: int) -> int:
        return number

    run = hand.begin(flow, "3")
    hand.do(store.set_external_state, run, is_open.name, "true", "a clerk")
    assert isinstance(perform(hand, flow, "stream"), TaskFailed)
    hand.do(store.set_external_state, run, is_open.name, "false", "a clerk")
    assert isinstance(perform(hand, flow, "stream"), TaskSettled)
    found = hand.steps(run)["stream"]
    assert (found.state, found.generating, found.spawned) == (StepState.RUNNING, "complete", 3)


def test_a_step_that_waits_behind_its_gate_is_not_put_before_it_again(
    work: Start, hand: Hand
) -> None:
    flow = Flow("behind")
    is_open = flow.state("is_open", bool, external=True)
    is_done = flow.state("is_done", bool, external=True)

    @flow.step(wait_for=lambda it: it[is_open], reads=[is_open, is_done])
    def switch(context: Context) -> bool:
        return context.wait_for_state(lambda it: it[is_done])[is_done]

    works = work(flow)
    run = start_flow(works.database, flow)
    run.set_state(is_open, True, "a clerk")
    inside = "SELECT 1 FROM tidegate.flow_task WHERE state = 'suspended' AND wait_number = 1"
    wait_until(lambda: bool(hand.ask(inside)))
    run.set_state(is_open, False, "a clerk")
    run.set_state(is_done, True, "a clerk")
    run.wait(60, works.notifications)


def test_a_wait_of_a_step_that_reads_nothing_is_refused(hand: Hand) -> None:
    flow = Flow("blind")

    @flow.step
    def switch(context: Context) -> None:
        context.wait_for_state(lambda _: False)

    run = hand.begin(flow)
    outcome = perform(hand, flow, "switch")
    assert isinstance(outcome, TaskFailed)
    assert outcome.is_final
    assert outcome.error.startswith("StateUndeclared")
    assert hand.state(run) == "failed"


def test_a_key_of_an_item_is_a_text(hand: Hand) -> None:
    flow = Flow("alike")

    @flow.generator(key=lambda it: it)
    def stream(context: Context) -> Iterator[int | str]:
        yield "1"
        yield 1

    @stream.handler
    def handle(context: Context, item: int | str) -> str:
        return repr(item)

    hand.begin(flow)
    outcome = perform(hand, flow, "stream")
    assert isinstance(outcome, TaskFailed)
    assert outcome.is_final
    assert outcome.error.startswith("InvalidFlowValue")


def test_handlers_that_look_at_the_state_inside_of_a_transaction_need_no_other(
    hand: Hand, url: str, notifications: Notifications
) -> None:
    flow, together = Flow("nested"), Barrier(2)
    last = flow.state("last", int)

    @flow.map_step(writes=last)
    def count(context: Context, number: int) -> int:
        def look(_: Connection) -> int | None:
            together.wait(30)
            return context.get_state(last)

        context.with_state({last: number}, look)
        return number

    with (
        Database(url, pool_size=2).attach() as small,
        FlowWorker(small, [flow], notifications, threads=2),
    ):
        run = start_flow(hand.database, flow, [1, 2, 3, 4])
        run.wait(30, notifications)


def test_what_is_written_inside_of_a_transaction_is_gone_with_it(hand: Hand) -> None:
    flow = Flow("whole")
    first, second = flow.state("first", int), flow.state("second", int)

    @flow.step(writes=[first, second])
    def write(context: Context) -> None:
        raise NotImplementedError

    hand.begin(flow)
    (claim,) = hand.claim("whole/write")
    context = TaskContext(hand.database, flow.definition, claim)

    def fail(_: Connection) -> None:
        context.set_state(first, 1)
        assert context.get_state(first) == 1
        raise KeyError("second")

    with pytest.raises(KeyError):
        context.with_state({second: 2}, fail)
    assert (context.get_state(first), context.get_state(second)) == (None, None)
    context.set_state(first, 3)
    assert context.get_state(first) == 3
