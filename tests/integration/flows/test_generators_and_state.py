"""A generator that writes the state: what it has yielded before is there before it."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event

import pytest

from tests.integration.flows.calls import QUICKLY, Start
from tests.integration.flows.conftest import Hand
from tests.waiting import wait_until
from tidegate.flows import Context, Flow, is_set
from tidegate.flows.client import start_flow


def counting(release: Event, breaks_at: int | None = None) -> Flow:
    """Yields ten at a time and says how far it is, with its cursor saved before."""
    flow = Flow("counting")
    offset = flow.state("offset", int, monotonic=True)
    broken: list[int] = []

    @flow.generator(writes=offset, retries=3, backoff=QUICKLY, flush_every=3600, batch=1000)
    def count(context: Context, last: int) -> Iterator[int]:
        first = context.cursor or 0
        for start in range(first, last, 10):
            yield from range(start, start + 10)
            context.save_cursor(start + 10)
            context.set_state(offset, start + 10)
            if start + 10 == breaks_at and not broken:
                broken.append(start)
                raise ConnectionError("half-way")
        release.wait(30)

    @count.handler
    def double(context: Context, number: int) -> int:
        return 2 * number

    return flow


def test_items_are_there_before_the_state_that_announces_them(work: Start, hand: Hand) -> None:
    release = Event()
    flow = counting(release)
    works = work(flow)
    run = start_flow(works.database, flow, 50)
    told = "SELECT value FROM tidegate.flow_state WHERE run_id = %s"
    wait_until(lambda: hand.ask(told, run.id) == [(50,)])
    assert hand.steps(run.id)["count"].spawned == 50
    release.set()
    run.wait(30)


@pytest.mark.parametrize("breaks_at", [10, 30, 50])
def test_a_generator_that_saves_its_cursor_before_never_takes_its_state_back(
    work: Start, hand: Hand, breaks_at: int
) -> None:
    release = Event()
    release.set()
    flow = counting(release, breaks_at)
    works = work(flow)
    run = works.finish(flow, 50)
    assert hand.steps(run.id)["count"].succeeded == 50
    assert "half-way" in (hand.steps(run.id)["count"].last_error or "")


def test_a_generator_whose_items_fill_the_room_writes_its_state_all_the_same(
    work: Start, hand: Hand
) -> None:
    flow = Flow("gated-items")
    ready = flow.state("ready", bool)

    @flow.generator(max_in_flight=3, batch=3, writes=ready, reads=ready)
    def three(context: Context) -> Iterator[int]:
        yield from range(3)
        context.save_cursor("all of them")
        context.set_state(ready, True)  # its handlers wait for it

    @three.handler
    def handle(context: Context, number: int) -> int:
        context.wait_for_state(is_set(ready))
        return number

    run = work(flow).finish(flow)
    assert hand.steps(run.id)["three"].succeeded == 3


def test_a_generator_that_waits_has_stored_what_it_has_yielded(work: Start, hand: Hand) -> None:
    flow = Flow("waiting-generator")
    handled = flow.state("handled", bool, external=True)

    @flow.generator(max_in_flight=2, batch=2, flush_every=3600, reads=handled)
    def nine(context: Context) -> Iterator[int]:
        yield from range(9)
        context.wait_for_state(is_set(handled))

    @nine.handler
    def handle(context: Context, number: int) -> int:
        return number

    works = work(flow)
    run = start_flow(works.database, flow)
    wait_until(lambda: hand.steps(run.id)["nine"].succeeded == 9)
    run.set_state(handled, True, "the test")
    run.wait(30)
