"""Strange errors, values and calls of users' functions are told, and harm nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event

import pytest

from tests.integration.flows.calls import QUICKLY, Calls, Start
from tests.integration.flows.conftest import Hand
from tests.integration.flows.declared import approved
from tests.waiting import wait_until
from tidegate.errors import FlowFailed
from tidegate.flows import Context, Flow, StepState
from tidegate.flows.client import flow_run, start_flow
from tidegate.store.flows import runs as store


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("nothing to say")


@pytest.mark.parametrize("error", [OSError("report-\udcff.csv"), OSError("a\0b"), Mute()])
def test_an_error_that_cannot_be_stored_as_it_is_fails_its_step_all_the_same(
    work: Start, error: Exception
) -> None:
    flow = Flow("untold")

    @flow.step
    def broken(context: Context) -> int:
        raise error

    works = work(flow)
    life = works.worker.name
    with pytest.raises(FlowFailed, match=type(error).__name__):
        works.finish(flow)
    assert works.worker.name == life


def test_a_closed_run_of_another_flow_is_a_failure_and_not_a_reason_to_begin_again(
    work: Start, hand: Hand
) -> None:
    flow, calls = Flow("nosy"), Calls()
    other = hand.begin(approved, '"?"')
    hand.do(store.cancel_flow, other, "enough")

    @flow.step(retries=1, backoff=QUICKLY)
    def answer(context: Context) -> int:
        calls.note("answer")
        flow_run(hand.database, other, approved).signal("act", True, "me")
        return 1

    with pytest.raises(FlowFailed, match="FlowRunClosed"):
        work(flow).finish(flow)
    assert len(calls.made) == 2


@pytest.mark.parametrize("timeout", [float("inf"), 1e300])
def test_a_wait_with_a_bound_that_never_comes_is_a_failure(work: Start, timeout: float) -> None:
    flow = Flow("forever")
    ever = flow.state("ever", bool, external=True)

    @flow.step(reads=ever)
    def idle(context: Context) -> int:
        context.wait_for_state(lambda it: it[ever], timeout=timeout)
        return 1

    works = work(flow)
    life = works.worker.name
    with pytest.raises(FlowFailed):
        works.finish(flow)
    assert works.worker.name == life


def test_items_without_a_key_are_refused_where_one_was_promised(work: Start) -> None:
    flow = Flow("keyless")

    @flow.generator(key=lambda it: it.get("id"))
    def found(context: Context) -> Iterator[dict[str, str]]:
        yield {"id": "a"}
        yield {"name": "b"}
        yield {"name": "c"}

    @found.handler
    def handle(context: Context, item: dict[str, str]) -> int:
        return 1

    with pytest.raises(FlowFailed, match=r"InvalidFlowValue.*no key"):
        work(flow).finish(flow)


def test_batches_of_large_items_are_as_small_as_the_database_needs_them(work: Start) -> None:
    flow = Flow("large")

    @flow.generator(batch=100)
    def pages(context: Context, size: int) -> Iterator[str]:
        yield from ("x" * size for _ in range(12))

    @pages.handler
    def measure(context: Context, page: str) -> int:
        return len(page)

    works = work(flow, threads=1)
    assert list(works.give(flow, 24_000_000, "pages")) == [24_000_000] * 12


def test_generators_that_hang_leave_others_to_workers_with_threads_for_them(
    work: Start, hand: Hand
) -> None:
    hanging, sound, released = Flow("hanging"), Flow("sound"), Event()

    @hanging.generator(timeout=0.1)
    def hang(context: Context) -> Iterator[int]:
        released.wait(60)
        yield 1

    @sound.generator
    def count(context: Context) -> Iterator[int]:
        yield 1

    for generator in (hang, count):

        @generator.handler
        def handle(context: Context, number: int) -> int:
            return number

    first = work(hanging, sound)
    try:
        runs = [start_flow(first.database, hanging) for _ in range(4)]
        for run in runs:
            wait_until(lambda run=run: hand.state(run.id) == "failed")  # type: ignore[misc]
        wait_until(lambda: first.worker.in_flight_count == 0)
        second = work(sound)
        for _ in range(8):
            assert hand.steps(second.finish(sound).id)["count"].state is StepState.COMPLETED
    finally:
        released.set()


def test_a_wait_that_a_handler_swallows_is_a_wait_all_the_same(work: Start, hand: Hand) -> None:
    flow = Flow("deaf")
    ever = flow.state("ever", bool, external=True)

    @flow.step(reads=ever)
    def hasty(context: Context) -> int:
        try:
            context.wait_for_state(lambda it: it[ever])
        except BaseException:  # noqa: BLE001  that is the mistake
            return 1
        return 2

    works = work(flow)
    run = start_flow(works.database, flow)
    asked = "SELECT state FROM tidegate.flow_task WHERE run_id = %s"
    wait_until(lambda: hand.ask(asked, run.id) in ([("suspended",)], [("succeeded",)]))
    assert hand.ask(asked, run.id) == [("suspended",)]
