"""Items of generators become tasks once, and a step with them completes once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.integration.flows.conftest import ITEMS, Hand
from tidegate.errors import (
    SpawnRefused,
)
from tidegate.flows import Context, Flow, StepState
from tidegate.flows.worker.executor import TaskExecutor
from tidegate.flows.worker.task_context import TaskContext
from tidegate.store import Database
from tidegate.store.flows import runs as store
from tidegate.store.flows import tasks


def test_items_are_worked_on_while_the_generator_still_yields(hand: Hand) -> None:
    run, generator = hand.generating()
    assert hand.spawn(generator, range(3)) == (3, 3)
    items = hand.claim(ITEMS)
    assert [it.position for it in items] == [0, 1, 2]
    assert hand.complete(items, "2") == []
    assert hand.spawn(generator, range(3, 5)) == (5, 2)
    assert hand.do(tasks.finish_generator, generator) == 5
    assert hand.steps(run)["count_up"].state is StepState.RUNNING
    hand.complete(hand.claim(ITEMS), "2")
    assert hand.steps(run)["count_up"].state is StepState.COMPLETED
    hand.complete(hand.claim("numbers/total"), "10")
    assert hand.state(run) == "completed"


def test_items_become_tasks_a_hundred_in_each_transaction(hand: Hand) -> None:
    flow = Flow("batches")

    @flow.generator(flush_every=600.0)
    def stream(context: Context) -> Iterator[int]:
        yield from range(250)

    @stream.handler
    def handle(context: Context, number: int) -> int:
        return number

    hand.begin(flow)
    (claim,) = hand.claim("batches/stream")
    TaskExecutor(hand.database).execute(TaskContext(hand.database, flow.definition, claim))
    batches = (
        "SELECT count(*) FROM tidegate.flow_task WHERE position >= 0"
        " GROUP BY xmin ORDER BY min(position)"
    )
    assert hand.ask(batches) == [(100,), (100,), (50,)]


def test_an_empty_stream_completes(hand: Hand) -> None:
    run, generator = hand.generating()
    hand.do(tasks.finish_generator, generator)
    found = hand.steps(run)
    assert found["count_up"].state is StepState.COMPLETED
    assert found["total"].state is StepState.RUNNING
    assert hand.do(store.item_results, run, "count_up", -1) == []


def test_items_that_are_there_already_are_recognised(hand: Hand) -> None:
    run, generator = hand.generating()
    hand.spawn(generator, range(4))
    assert hand.spawn(generator, range(4)) == (4, 4)
    assert hand.spawn(generator, range(2, 6)) == (6, 6)
    assert hand.steps(run)["count_up"].spawned == 6


def test_items_with_keys_are_recognised_by_them(hand: Hand) -> None:
    run, generator = hand.generating()
    first = [("a", "1"), ("b", "2"), ("a", "1")]
    assert hand.do(tasks.spawn, generator, first) == (2, 2)
    assert hand.do(tasks.spawn, generator, [("c", "3"), ("b", "2")]) == (3, 3)
    assert [it.payload for it in hand.claim(ITEMS)] == ["1", "2", "3"]
    assert hand.steps(run)["count_up"].spawned == 3


def test_a_gap_in_positions_is_refused(hand: Hand) -> None:
    _, generator = hand.generating()
    with pytest.raises(SpawnRefused, match="positions 0"):
        hand.spawn(generator, range(1, 3))


def test_items_after_the_end_are_refused(hand: Hand) -> None:
    run, generator = hand.generating()
    hand.spawn(generator, range(2))
    hand.do(tasks.finish_generator, generator)
    with pytest.raises(SpawnRefused, match="complete"):
        hand.spawn(generator, range(2, 3))
    assert hand.steps(run)["count_up"].spawned == 2


def test_a_cursor_is_saved_with_the_items_before_it(hand: Hand) -> None:
    _, generator = hand.generating()
    hand.do(tasks.spawn, generator, [(0, "0"), (1, "1")], ('"page 2"', 2))
    place = hand.do(tasks.generator_position, generator.step_id)
    assert (place.spawned, place.cursor, place.cursor_position) == (2, '"page 2"', 2)


@pytest.mark.parametrize("attempt", range(9))
def test_a_step_completes_once_when_its_last_task_and_its_generators_end_race(
    hand: Hand, database: Database, attempt: int
) -> None:
    run, generator = hand.generating()
    hand.spawn(generator, range(8))
    items = hand.claim(ITEMS)
    with ThreadPoolExecutor(9) as threads:
        ends: list[Future[Any]] = []
        for number, it in enumerate([*items[:attempt], None, *items[attempt:]]):
            if it is None:
                ends.append(threads.submit(hand.do, tasks.finish_generator, generator))
            else:
                ends.append(threads.submit(hand.complete, [it], str(number)))
        assert [it.result() for it in ends].count([]) == 8
    found = hand.steps(run)["count_up"]
    assert (found.state, found.succeeded, found.in_flight) == (StepState.COMPLETED, 8, 0)
    assert len(hand.claim("numbers/total")) == 1


def test_two_runs_may_end_in_one_call(hand: Hand) -> None:
    runs = []
    for _ in range(2):
        run, generator = hand.generating()
        hand.spawn(generator, range(2))
        hand.do(tasks.finish_generator, generator)
        runs.append(run)
    assert hand.complete(hand.claim(ITEMS), "1") == []
    assert hand.complete(hand.claim("numbers/total"), "2") == []
    assert [hand.state(run) for run in runs] == ["completed", "completed"]
