"""What a step does beside its result: effects with the state, pauses between looks, going on."""

from __future__ import annotations

from threading import Event
from typing import Any

import pytest

from tests.integration.flows.calls import Calls, Start
from tests.integration.flows.conftest import Hand
from tests.integration.flows.declared import gated
from tests.waiting import wait_until
from tidegate.errors import ClaimLost, StateUndeclared
from tidegate.flows import Context, Flow
from tidegate.flows.client import start_flow
from tidegate.flows.worker.task_context import TaskContext
from tidegate.store import Connection
from tidegate.store.flows import runs as store
from tidegate.store.flows import tasks

marking = Flow("marking")
mark = marking.state("mark", int)
other = marking.state("other", int, external=True)


@marking.step(writes=mark, reads=other)
def note(context: Context) -> int:
    return 1


def claimed(hand: Hand) -> TaskContext:
    hand.do(lambda connection: connection.execute("CREATE TABLE public.effect (mark integer)"))
    hand.begin(marking)
    (claim,) = hand.claim("marking/note")
    return TaskContext(hand.database, marking.definition, claim)


def insert(connection: Connection) -> int:
    connection.execute("INSERT INTO public.effect VALUES (7)")
    return 7


def both(hand: Hand, run: int) -> tuple[list[Any], str | None]:
    _, values = hand.do(store.flow_state, run)
    return hand.ask("SELECT mark FROM public.effect"), values["mark"].json


def test_an_effect_is_there_with_the_state_that_announces_it(hand: Hand) -> None:
    context = claimed(hand)
    assert context.with_state({mark: 7}, insert) == 7
    assert both(hand, context.run) == ([(7,)], "7")


def test_an_effect_of_a_stale_claimant_is_undone_with_its_state(hand: Hand) -> None:
    context = claimed(hand)
    hand.ask("UPDATE tidegate.flow_task SET epoch = epoch + 1 RETURNING 1")
    with pytest.raises(ClaimLost):
        context.with_state({mark: 7}, insert)
    assert both(hand, context.run) == ([], None)


def test_a_key_that_a_step_may_not_write_keeps_its_effect_from_happening(hand: Hand) -> None:
    context = claimed(hand)
    with pytest.raises(StateUndeclared):
        context.with_state({other: 7}, insert)
    assert both(hand, context.run) == ([], None)


def test_a_wait_looks_no_more_often_than_it_wants_to(hand: Hand) -> None:
    run = hand.begin(gated, "5")
    (switch,) = hand.claim("gated/switch")
    hand.do(tasks.suspend, switch, ["offset"], 0, 1, 3600.0, None)
    hand.do(store.set_external_state, run, "offset", "1", "a feed")
    assert hand.ask("SELECT state FROM tidegate.flow_task") == [("ready",)]
    assert hand.claim("gated/switch") == []


def test_a_step_that_can_go_on_elsewhere_does_so_when_its_worker_stops(work: Start) -> None:
    flow, calls, is_over = Flow("resumable"), Calls(), Event()

    @flow.step(resumable=True)
    def follow(context: Context) -> int:
        calls.note("begun")
        while not is_over.wait(0.01):
            context.check()
        return context.attempt

    first = work(flow)
    run = start_flow(first.database, flow)
    wait_until(lambda: len(calls.made) == 1)
    assert first.worker.drain(30)
    work(flow)
    wait_until(lambda: len(calls.made) == 2)
    is_over.set()
    run.wait(60, first.notifications)
    assert run.result("follow") == 1
