"""Several workers, writers and runs at once, and pauses, drains and losses among them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from tests.integration.flows.calls import Calls, Start
from tests.integration.flows.conftest import Hand
from tests.integration.flows.declared import gated, numbers, offset
from tests.waiting import wait_until
from tidegate.errors import FlowRunClosed, StateRegressed
from tidegate.flows import Context, Flow
from tidegate.flows.client import flow_run, start_flow
from tidegate.flows.worker.worker import FlowWorker
from tidegate.store import Database, Notifications
from tidegate.store.flows import runs as store


def test_of_several_workers_one_runs_a_generator_and_all_handle_its_items(
    work: Start, hand: Hand
) -> None:
    flow, calls = Flow("shared"), Calls()

    @flow.generator(batch=5, flush_every=0.01)
    def stream(context: Context) -> Iterator[int]:
        calls.note(("generator", context.run))
        yield from range(60)

    @stream.handler
    def handle(context: Context, number: int) -> int:
        calls.note((context.run, number))
        return number

    works = [work(flow, threads=2) for _ in range(3)]
    runs = [start_flow(hand.database, flow) for _ in range(6)]
    for run in runs:
        run.wait(60, works[0].notifications)
    assert len(calls.made) == len(set(calls.made)) == 6 * 61
    assert sum(it.worker.done for it in works) >= 6 * 61


def test_workers_without_a_name_are_not_taken_for_each_other(
    hand: Hand, database: Database, notifications: Notifications
) -> None:
    with (
        FlowWorker(database, [numbers], notifications) as one,
        FlowWorker(database, [numbers], notifications) as other,
    ):
        assert one.name != other.name
        runs = [start_flow(database, numbers, 50) for _ in range(4)]
        for run in runs:
            run.wait(60, notifications)
    assert hand.ask("SELECT sum(losses)::integer FROM tidegate.flow_task") == [(0,)]


def test_a_watermark_gate_opens_exactly_when_it_is_reached_however_many_write(
    work: Start, hand: Hand
) -> None:
    works, last = work(gated), 40
    runs = [start_flow(hand.database, gated, last) for _ in range(4)]

    def advance(number: int) -> None:
        for value in range(number, last + 1):
            for run in runs:
                with suppress(StateRegressed, FlowRunClosed):
                    run.set_state(offset, value, f"writer {number}")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(advance, range(4)))
    for run in runs:
        run.wait(60, works.notifications)
        assert run.result("switch") == 0


def backlog() -> Flow:
    flow = Flow("backlog")

    @flow.generator(batch=5, flush_every=0.01, max_in_flight=20)
    def stream(context: Context) -> Iterator[int]:
        yield from range(200)

    @stream.handler
    def handle(context: Context, number: int) -> int:
        return number

    return flow


def paused_behind_its_backlog(hand: Hand, flow: Flow) -> int:
    """A run that was paused before a worker saw its generator's items."""
    run = start_flow(hand.database, flow)
    (generator,) = hand.claim("backlog/stream")
    hand.do(store.pause_flow, run.id)
    hand.spawn(generator, range(1))
    hand.ask("UPDATE tidegate.flow_task SET state = 'ready', owner = NULL"
             " WHERE position = -1 RETURNING 1")  # fmt: skip
    return run.id


def test_the_generator_of_a_paused_run_goes_on_until_too_many_items_wait(
    work: Start, hand: Hand
) -> None:
    flow = backlog()
    run = paused_behind_its_backlog(hand, flow)
    works = work(flow)
    wait_until(lambda: hand.steps(run)["stream"].spawned >= 20)
    asked = "SELECT count(*) FROM tidegate.flow_task WHERE state = 'claimed' AND position = -1"
    assert hand.ask(asked) == [(1,)]
    found = hand.steps(run)["stream"]
    assert (found.spawned <= 25, found.succeeded) == (True, 0)
    hand.do(store.resume_flow, run)
    flow_run(hand.database, run).wait(60, works.notifications)
    assert list(flow_run(hand.database, run, flow).result("stream")) == list(range(200))


def test_a_worker_drains_although_its_generator_waits_for_handlers(work: Start, hand: Hand) -> None:
    flow = backlog()
    run = paused_behind_its_backlog(hand, flow)
    first = work(flow)
    wait_until(lambda: hand.steps(run)["stream"].spawned >= 20)
    assert first.worker.drain(30)
    hand.do(store.resume_flow, run)
    second = work(flow)
    flow_run(second.database, run).wait(60, second.notifications)
    assert list(flow_run(second.database, run, flow).result("stream")) == list(range(200))
    assert hand.ask("SELECT sum(losses)::integer FROM tidegate.flow_task") == [(0,)]


def test_runs_go_on_without_notifications(work: Start, hand: Hand) -> None:
    works = work(numbers)
    deaf = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND query ILIKE 'LISTEN%%'"
    )
    assert hand.ask(deaf)
    assert works.give(numbers, 50, "total") == 50 * 49


def test_a_small_run_is_not_starved_by_other_flows_with_many_items(work: Start, hand: Hand) -> None:
    large = backlog()
    works = work(large, numbers, threads=1)
    runs = [start_flow(hand.database, large) for _ in range(10)]
    small = start_flow(hand.database, numbers, 3)
    small.wait(60, works.notifications)
    assert any(hand.state(run.id) == "running" for run in runs)
