"""What happens to a run is told as events, and its waits are seen while they last."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.flows.calls import Start
from tests.integration.flows.conftest import GENERATOR, ITEMS, Hand
from tests.integration.flows.declared import approved, gated, numbers, offset
from tests.integration.flows.test_waiting import is_suspended
from tests.waiting import wait_until
from tidegate.flows import Context, Flow, is_set, reached
from tidegate.flows.client import start_flow
from tidegate.store.flows import runs as store
from tidegate.store.flows import tasks
from tidegate.store.flows.events import FlowEvent, flow_events, flow_waits, tasks_by_worker


def told(hand: Hand, run: int, *kinds: str) -> list[tuple[str, ...]]:
    """Kind, name and what became of it."""
    found = hand.do(flow_events, run)
    return [
        (it.kind, it.name, str(it.detail.get("to", it.detail.get("by", ""))))
        for it in found
        if not kinds or it.kind in kinds
    ]


def events(hand: Hand, run: int, kind: str) -> list[FlowEvent]:
    return [it for it in hand.do(flow_events, run) if it.kind == kind]


def test_the_events_of_a_run_are_in_order(hand: Hand) -> None:
    run = hand.begin(approved, '"now?"')
    hand.complete(hand.claim("approved/ask"), '"now?"')
    hand.do(store.signal_flow, run, "act", "true", "a clerk")
    hand.complete(hand.claim("approved/act"), '"done"')
    assert told(hand, run) == [
        ("run", "approved", "running"),
        ("step", "ask", "running"),
        ("step", "ask", "completed"),
        ("signal", "act", "a clerk"),
        ("step", "act", "running"),
        ("step", "act", "completed"),
        ("run", "approved", "completed"),
    ]
    numbered = [it.id for it in hand.do(flow_events, run)]
    assert numbered == sorted(numbered)
    assert hand.do(flow_events, run, after=numbered[4]) == hand.do(flow_events, run)[5:]


def test_items_are_no_events_and_are_counted_when_their_step_ends(hand: Hand) -> None:
    run, generator = hand.generating()
    hand.spawn(generator, range(30))
    hand.do(tasks.finish_generator, generator)
    hand.complete(hand.claim(ITEMS))
    assert told(hand, run)[:3] == [
        ("run", "numbers", "running"),
        ("step", "count_up", "running"),
        ("step", "count_up", "completed"),
    ]
    counted = events(hand, run, "step")[1].detail["items"]
    assert counted == {"spawned": 30, "succeeded": 30, "failed": 0, "canceled": 0}


def test_a_failure_is_reported_with_its_cause(hand: Hand) -> None:
    run = hand.begin(numbers, "3")
    (generator,) = hand.claim(GENERATOR)
    hand.do(tasks.fail, generator, "no source", 0.0, is_final=True)
    last = events(hand, run, "run")[-1]
    assert (last.detail["from"], last.detail["to"]) == ("running", "failed")
    assert last.detail["cause"] == "step count_up: no source"


def test_another_failure_policy_is_reported(hand: Hand) -> None:
    run, _ = hand.generating()
    hand.do(store.tolerate, run, "count_up", 5, None)
    assert [it.detail for it in events(hand, run, "policy")] == [{"count": 5}]


def test_of_a_monotonic_key_at_most_one_write_per_second_is_reported(hand: Hand) -> None:
    run = hand.begin(gated, "5")
    for value in range(300):
        hand.do(store.set_external_state, run, "offset", str(value), "a feed")
    written = events(hand, run, "state")
    assert written[0].detail == {"value": 0, "by": "a feed"}
    seconds = [it.at.replace(microsecond=0) for it in written]
    took = (written[-1].at - written[0].at).total_seconds()
    assert len(written) <= took + 2
    assert len(set(seconds)) == len(seconds)


def test_of_another_key_every_change_is_reported(hand: Hand) -> None:
    flow = Flow("switches")
    flow.state("is_on", bool, external=True)
    flow.step(answer)
    run = hand.begin(flow)
    for value in ("true", "false", "false", "true"):
        hand.do(store.set_external_state, run, "is_on", value, "a clerk")
    assert [it.detail["value"] for it in events(hand, run, "state")] == [True, False, True]


def test_a_wait_is_reported_when_it_starts_and_ends(work: Start, hand: Hand) -> None:
    works = work(gated)
    run = start_flow(works.database, gated, 7)
    for value in (3, 5, 7):
        wait_until(lambda: is_suspended(hand, run.id))
        run.set_state(offset, value, "a feed")
    run.wait(60, works.notifications)
    begun, passed = events(hand, run.id, "wait")
    assert begun.detail == {"to": "begun", "keys": ["offset", "target"]}
    assert (passed.detail["to"], passed.detail["state"]) == ("passed", {"offset": 7, "target": 7})
    assert hand.do(flow_waits, run.id) == []


@pytest.mark.parametrize("outcome", ["canceled", "failed"])
def test_a_wait_that_times_out_is_reported_as_well(work: Start, hand: Hand, outcome: str) -> None:
    flow = Flow("in_vain")
    flow.state("mark", int, external=True)

    @flow.step(reads="mark")
    def switch(context: Context) -> int:
        bound = 0.2 if outcome == "failed" else None
        context.wait_for_state(lambda it: it["mark"], timeout=bound)
        return 1

    works = work(flow, seconds=1.0)
    run = start_flow(works.database, flow)
    wait_until(lambda: told(hand, run.id, "wait") != [])
    if outcome == "canceled":
        hand.do(store.cancel_flow, run.id, "enough")
    wait_until(lambda: told(hand, run.id, "wait")[1:] == [("wait", "switch", outcome)])


def test_a_wait_is_shown_with_its_progress_and_last_writer(work: Start, hand: Hand) -> None:
    flow = Flow("seen")
    position = flow.state("position", int, monotonic=True, external=True)
    mark = flow.state("mark", int, external=True)
    is_filled = flow.state("is_filled", bool, external=True)
    gate = reached(position, mark) & is_set(is_filled) & reached(mark, 9000)
    flow.step(wait_for=gate, wait_timeout=600)(answer)
    works = work(flow)
    run = start_flow(works.database, flow)
    run.set_state(position, 4100, "a feed")
    run.set_state(mark, 5000, "a clerk")
    wait_until(lambda: is_suspended(hand, run.id))
    asked = (
        "SELECT key, value, target_key, target, behind, writer, seconds_since_written < 600,"
        " wait_until - waiting_since = interval '600 s'"
        " FROM tidegate.flow_waits WHERE run_id = %s ORDER BY key"
    )
    assert hand.ask(asked, run.id) == [
        ("is_filled", None, None, None, None, None, None, True),
        ("mark", 5000, None, 9000, 4000, "a clerk", True, True),
        ("position", 4100, "mark", 5000, 900, "a feed", True, True),
    ]
    filled, marked, positioned = hand.do(flow_waits, run.id)
    assert str(filled.standing) == "is_filled was never written"
    assert str(marked.standing).startswith("mark is 5,000 of 9,000: 4,000 behind, last written")
    assert positioned.standing is not None
    assert positioned.standing.distance == "position is 4,100 of 5,000 (mark): 900 behind"


def test_it_is_known_which_workers_hold_what(hand: Hand) -> None:
    run, generator = hand.generating()
    hand.spawn(generator, range(7))
    hand.claim(ITEMS, room=4)
    held: Any = [
        (it.worker, it.step, it.is_items, it.number) for it in hand.do(tasks_by_worker, run)
    ]
    assert held == [("hand", "count_up", False, 1), ("hand", "count_up", True, 4)]


def test_events_go_with_their_run(hand: Hand) -> None:
    run = hand.begin(approved, '"?"')
    hand.do(store.cancel_flow, run, "enough")
    assert hand.do(store.remove_closed_flows, 0.0) == 1
    assert hand.ask("SELECT count(*) FROM tidegate.flow_event") == [(0,)]


def answer(context: Context) -> int:
    return 1
