"""Waits for a flow's state hold nothing, and end when the state says so."""

from __future__ import annotations

from datetime import timedelta
from time import monotonic

import pytest
from psycopg.conninfo import make_conninfo

from tests.integration.flows.calls import Calls, Start
from tests.integration.flows.conftest import Hand
from tests.integration.flows.declared import gated, offset
from tests.waiting import wait_until
from tidegate.errors import FlowFailed
from tidegate.flows import Context, Flow, FlowStateReader, is_set, reached
from tidegate.flows.client import start_flow
from tidegate.flows.worker.worker import FlowWorker
from tidegate.store import Database, Notifications
from tidegate.store.flows import runs as store


def is_suspended(hand: Hand, run: int) -> bool:
    asked = "SELECT state FROM tidegate.flow_task WHERE run_id = %s AND state = 'suspended'"
    return len(hand.ask(asked, run)) == 1


def test_a_wait_holds_no_thread_and_is_woken_by_the_write_alone(work: Start, hand: Hand) -> None:
    works = work(gated, threads=1, look_every=600.0)
    runs = [start_flow(works.database, gated, number) for number in (5, 6)]
    for run in runs:
        wait_until(lambda run=run: is_suspended(hand, run.id))  # type: ignore[misc]
    wait_until(lambda: works.worker.in_flight_count == 0)
    not_before = "SELECT bool_and(available_at < now()) FROM tidegate.flow_task"
    wait_until(lambda: hand.ask(not_before) == [(True,)])
    for run in runs:
        began = monotonic()
        run.set_state(offset, 7, "a feed")
        run.wait(60, works.notifications)
        assert monotonic() - began < 10.0  # nobody looks by itself
    assert runs[0].result("switch") == 2


def test_waits_hold_no_connection(hand: Hand, url: str, notifications: Notifications) -> None:
    named = make_conninfo(url, application_name="waiting")
    pool = 3
    with (
        Database(named, pool_size=pool, bound=20.0).open() as database,
        FlowWorker(database, [gated], notifications, threads=2) as worker,
    ):
        for number in range(50):
            start_flow(hand.database, gated, number)
        suspended = "SELECT count(*) FROM tidegate.flow_task WHERE state = 'suspended'"
        wait_until(lambda: hand.ask(suspended) == [(50,)])
        wait_until(lambda: worker.in_flight_count == 0)
        mine = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'waiting'"
        ((connections,),) = hand.ask(mine)
        assert connections <= pool + 1  # one is for what cannot wait


def test_a_wait_is_looked_at_again_only_after_its_poll_interval(work: Start, hand: Hand) -> None:
    flow = Flow("polled")
    position = flow.state("position", int, external=True)

    @flow.step(reads=position)
    def switch(context: Context) -> int:
        return context.wait_for_state(lambda it: it[position] > 1, poll_interval=3600)[position]

    works = work(flow)
    run = start_flow(works.database, flow)
    wait_until(lambda: is_suspended(hand, run.id))
    run.set_state(position, 7, "a feed")
    found = "SELECT state, available_at - now() FROM tidegate.flow_task"
    ((state, ahead),) = hand.ask(found)
    assert state == "ready"
    assert timedelta(minutes=50) < ahead <= timedelta(hours=1)


def test_a_watermark_that_is_set_once_stays_when_the_step_is_run_again(
    work: Start, hand: Hand
) -> None:
    flow, head = Flow("watermark"), Calls()
    position = flow.state("position", int, monotonic=True, external=True)
    mark = flow.state("mark", int)

    @flow.step(writes=mark, reads=[position, mark])
    def switch(context: Context) -> int:
        captured = context.set_state_once(mark, 10 * head.note("look"))
        context.wait_for_state(lambda it: it[position] >= it[mark])
        return captured

    works = work(flow)
    run = start_flow(works.database, flow)
    wait_until(lambda: is_suspended(hand, run.id))
    run.set_state(position, 3, "a feed")
    wait_until(lambda: len(head.made) == 2)
    wait_until(lambda: is_suspended(hand, run.id))
    run.set_state(position, 10, "a feed")
    run.wait(60, works.notifications)
    assert run.result("switch") == 10


def test_a_gate_holds_a_step_before_it_begins(work: Start, hand: Hand) -> None:
    flow, calls = Flow("gate"), Calls()
    is_done = flow.state("is_done", bool)

    @flow.step(writes=is_done)
    def fill(context: Context, value: int) -> int:
        calls.note("fill")
        context.set_state(is_done, True)
        return value

    @flow.step(wait_for=lambda it: it[is_done], reads=is_done)
    def after(context: Context, value: int) -> int:
        calls.note("after")
        return value

    work(flow).finish(flow, 1)
    assert calls.made == ["fill", "after"]


def test_a_wait_that_reaches_its_bound_names_the_key_and_its_last_writer(
    work: Start, hand: Hand
) -> None:
    flow = Flow("bounded")
    position = flow.state("position", int, external=True)

    @flow.step(reads=position, retries=3)
    def switch(context: Context) -> int:
        context.wait_for_state(lambda it: it[position] > 100, timeout=0.3, poll_interval=0.01)
        return 1

    works = work(flow, seconds=1.0)
    run = start_flow(works.database, flow)
    run.set_state(position, 7, "a feed")
    with pytest.raises(FlowFailed, match=r"'position', which is 7, last written by a feed"):
        run.wait(60, works.notifications)


def test_a_gate_that_times_out_reports_its_progress_and_last_writer(work: Start) -> None:
    flow = Flow("stalled")
    position = flow.state("position", int, monotonic=True, external=True)
    mark = flow.state("mark", int, external=True)
    is_filled = flow.state("is_filled", bool, external=True)
    gate = reached(position, mark) & is_set(is_filled)

    @flow.step(wait_for=gate, wait_timeout=1.5)
    def switch(context: Context) -> int:
        return 1

    works = work(flow, seconds=1.0)
    run = start_flow(works.database, flow)
    run.set_state(position, 4100, "a feed")
    run.set_state(mark, 5000, "a clerk")
    said = (
        r"for the state 'position', which is 4100, last written by a feed \d+\.\d s ago:"
        r" position is 4,100 of 5,000 \(mark\): 900 behind; is_filled was never written"
    )
    with pytest.raises(FlowFailed, match=said):
        run.wait(60, works.notifications)


def test_a_gate_opens_when_all_of_it_holds_and_is_woken_by_its_own_keys_alone(
    work: Start, hand: Hand
) -> None:
    flow = Flow("opened")
    position = flow.state("position", int, external=True)
    is_filled = flow.state("is_filled", bool, external=True)
    flow.state("other", int, external=True)

    @flow.step(reads="other", wait_for=reached(position, 5) & is_set(is_filled))
    def switch(context: Context) -> int:
        return 1

    works = work(flow)
    run = start_flow(works.database, flow)
    wait_until(lambda: is_suspended(hand, run.id))
    waits = "SELECT waits_for FROM tidegate.flow_task WHERE run_id = %s"
    assert hand.ask(waits, run.id) == [(["position", "is_filled"],)]
    run.set_state(position, 5, "a feed")
    run.set_state(is_filled, True, "a feed")
    run.wait(60, works.notifications)


def test_a_wait_ends_at_once_when_the_run_is_cancelled(work: Start, hand: Hand) -> None:
    works = work(gated)
    run = start_flow(works.database, gated, 5)
    wait_until(lambda: is_suspended(hand, run.id))
    assert hand.do(store.cancel_flow, run.id, "enough").value == "canceled"


def test_reading_a_key_that_was_not_declared_is_an_error(work: Start) -> None:
    flow = Flow("undeclared")
    known = flow.state("known", int, external=True)
    flow.state("secret", int, external=True)

    @flow.step(reads=known)
    def look(context: Context) -> int:
        def peek(state: FlowStateReader) -> bool:
            return bool(state["secret"])

        context.wait_for_state(peek)
        return 1

    with pytest.raises(FlowFailed, match="StateUndeclared"):
        work(flow).finish(flow)
