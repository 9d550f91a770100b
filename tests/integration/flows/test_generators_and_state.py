"""A generator that writes the state: what it has yielded before is there before it."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event

import pytest

from tests.integration.flows.calls import QUICKLY, Start
from tests.integration.flows.conftest import Hand
from tests.waiting import wait_until
from tidegate.flows import Context, Flow
from tidegate.run.flows import begin, wait


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


def test_items_are_there_before_the_state_that_tells_of_them(work: Start, hand: Hand) -> None:
    release = Event()
    flow = counting(release)
    works = work(flow)
    run = begin(works.database, flow, 50)
    told = "SELECT value FROM tidegate.flow_state WHERE run_id = %s"
    wait_until(lambda: hand.ask(told, run) == [(50,)])
    assert hand.steps(run)["count"].spawned == 50
    release.set()
    wait(works.database, run, 30)


@pytest.mark.parametrize("breaks_at", [10, 30, 50])
def test_a_generator_that_saves_its_cursor_before_never_takes_its_state_back(
    work: Start, hand: Hand, breaks_at: int
) -> None:
    release = Event()
    release.set()
    flow = counting(release, breaks_at)
    works = work(flow)
    run = works.finish(flow, 50)
    assert hand.steps(run)["count"].succeeded == 50
    assert "half-way" in (hand.steps(run)["count"].last_error or "")
