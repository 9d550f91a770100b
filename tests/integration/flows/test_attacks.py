"""What the functions of flows have to bear when calls are late, repeated, or come all at once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from tests.integration.flows.conftest import GENERATOR, ITEMS, Hand
from tests.integration.flows.declared import gated, numbers
from tidegate.errors import ClaimLost, FlowRunClosed, SpawnRefused, StateRegressed, UnknownFlowRun
from tidegate.flows import Context, Flow, StepState, Tolerate
from tidegate.store import Connection, Database
from tidegate.store.flows import runs as store
from tidegate.store.flows import tasks

LOSE = "DELETE FROM tidegate.lease WHERE kind = 'flow worker' RETURNING 1"
HURRY = "UPDATE tidegate.flow_task SET available_at = now() WHERE state = 'ready' RETURNING 1"


def beside() -> Flow:
    """A step with items that fail together, and another beside it."""
    flow = Flow("beside")

    @flow.generator(on_fail=Tolerate(share=0.1))
    def stream(context: Context) -> Iterator[int]:
        yield 1

    @stream.handler
    def handle(context: Context, number: int) -> int:
        return number

    @flow.step
    def other(context: Context) -> int:
        return 1

    @flow.step(depends_on=[stream, other])
    def both(context: Context, numbers: list[int], number: int) -> int:
        return number

    return flow


def test_a_batch_may_complete_one_step_and_fail_the_run_by_another(hand: Hand) -> None:
    run = hand.begin(beside())
    (generator,) = hand.claim("beside/stream")
    hand.spawn(generator, range(2))
    hand.do(tasks.finish_generator, generator)
    first, last = hand.claim("beside/stream[]")
    hand.do(tasks.fail, first, "broken", 0.0, is_final=True)
    assert hand.complete([last, *hand.claim("beside/other")], "1") == []
    assert hand.state(run) == "failed"
    assert hand.steps(run)["other"].state is StepState.COMPLETED
    hand.do(store.retry_flow, run)
    hand.complete(hand.claim("beside/stream[]"), "1")
    hand.complete(hand.claim("beside/both"), "1")
    assert hand.state(run) == "completed"


def test_an_attempt_that_has_failed_writes_nothing_more(hand: Hand) -> None:
    run = hand.begin(gated, "5")
    (late,) = hand.claim("gated/switch")
    hand.do(tasks.suspend, late, ["offset"], 0, 1, 0.0, None)
    with pytest.raises(ClaimLost, match="suspended"):
        hand.do(tasks.set_state, late, "target", "5", "switch", once=False)
    _, values = hand.do(store.flow_state, run)
    assert values["target"].json is None


def test_a_generator_whose_attempt_has_failed_spawns_nothing_more(hand: Hand) -> None:
    flow = Flow("retried")

    @flow.generator(retries=1)
    def stream(context: Context) -> Iterator[int]:
        yield 1

    @stream.handler
    def handle(context: Context, number: int) -> int:
        return number

    run = hand.begin(flow)
    (late,) = hand.claim("retried/stream")
    assert hand.do(tasks.fail, late, "too late", 0.0, is_final=False) == "ready"
    with pytest.raises(ClaimLost, match="ready"):
        hand.spawn(late, range(1))
    assert hand.steps(run)["stream"].spawned == 0


def test_items_are_known_either_by_their_positions_or_by_keys(hand: Hand) -> None:
    _, generator = hand.generating()
    hand.spawn(generator, range(2))
    with pytest.raises(SpawnRefused, match="positions"):
        hand.do(tasks.spawn, generator, [("a", "0")])
    _, generator = hand.generating()
    hand.do(tasks.spawn, generator, [("a", "0")])
    with pytest.raises(SpawnRefused, match="keys"):
        hand.spawn(generator, range(2))


def test_trying_again_is_harmless_when_repeated(hand: Hand) -> None:
    run, generator = hand.generating()
    hand.do(tasks.fail, generator, "broken", 0.0, is_final=True)
    hand.do(store.retry_flow, run)
    hand.do(store.retry_flow, run)
    assert hand.state(run) == "running"
    (again,) = hand.claim(GENERATOR)
    hand.do(store.retry_flow, run)
    hand.do(tasks.finish_generator, again)


@pytest.mark.parametrize(("before", "after"), [("a", "B"), ("a-1", "aZ"), ("é", "z")])
def test_texts_go_forward_as_their_characters_do_and_not_as_a_language_sorts_them(
    hand: Hand, before: str, after: str
) -> None:
    flow = Flow("texts")
    place = flow.state("place", str, monotonic=True, external=True)

    @flow.step(wait_for=lambda it: it[place] == "", reads=place)
    def wait(context: Context) -> int:
        return 1

    run = hand.begin(flow)
    low, high = sorted([before, after])
    hand.do(store.set_external_state, run, "place", f'"{low}"', "a feed")
    hand.do(store.set_external_state, run, "place", f'"{high}"', "a feed")
    with pytest.raises(StateRegressed):
        hand.do(store.set_external_state, run, "place", f'"{low}"', "a feed")


def test_a_long_run_with_progress_outlives_any_number_of_workers(hand: Hand) -> None:
    run = hand.begin(numbers, "5")
    for number in range(15):
        hand.ask(HURRY)
        (generator,) = hand.claim(GENERATOR)
        hand.spawn(generator, range(number, number + 1))
        hand.ask(LOSE)
        hand.do(store.sweep_flows)
    assert hand.state(run) == "running"
    waiting = hand.begin(gated, "5")
    for number in range(15):
        hand.ask(HURRY)
        (step,) = hand.claim("gated/switch")
        hand.do(tasks.suspend, step, ["offset"], number, 1, 0.0, None)
        hand.do(store.set_external_state, waiting, "offset", str(number), "a feed")
        hand.ask(HURRY)
        assert hand.claim("gated/switch")
        hand.ask(LOSE)
        hand.do(store.sweep_flows)
    assert hand.state(waiting) == "running"


def test_what_kills_workers_again_and_again_waits_longer_each_time(hand: Hand) -> None:
    _, generator = hand.generating()
    hand.spawn(generator, range(50))
    hand.do(tasks.finish_generator, generator)
    pauses = []
    for _ in range(8):
        hand.ask(HURRY)
        assert len(hand.claim(ITEMS)) == 50
        hand.ask(LOSE)
        hand.do(store.sweep_flows)
        late = "SELECT max(available_at) - now() FROM tidegate.flow_task WHERE state = 'ready'"
        pauses.append(hand.ask(late)[0][0].total_seconds())
    assert pauses[0] <= 0, "the first worker may have died of anything"
    assert pauses[-1] > 5.0
    apart = "SELECT count(DISTINCT available_at) FROM tidegate.flow_task WHERE state = 'ready'"
    assert hand.ask(apart)[0][0] > 40, "the innocent are not claimed with the one again"


def test_a_run_with_many_items_is_forgotten_a_part_at_a_time(hand: Hand) -> None:
    run, generator = hand.generating()
    hand.spawn(generator, range(25))
    hand.do(tasks.fail, generator, "broken", 0.0, is_final=True)
    asked = "SELECT tidegate.flow_remove_closed(0, 10, 10)"
    left = "SELECT count(*) FROM tidegate.flow_task"
    assert (hand.ask(asked), hand.ask(left)) == ([(1,)], [(16,)])
    with pytest.raises((FlowRunClosed, UnknownFlowRun)):
        hand.do(store.retry_flow, run)
    assert (hand.ask(asked), hand.ask(left)) == ([(1,)], [(6,)])
    assert (hand.ask(asked), hand.ask(left)) == ([(1,)], [(0,)])
    assert hand.ask(asked) == [(0,)]
    assert hand.do(store.flow_runs, None) == []


def test_a_worker_frozen_inside_a_transaction_blocks_no_other(hand: Hand, url: str) -> None:
    run, generator = hand.generating()
    hand.spawn(generator, range(2))
    first, second = hand.claim(ITEMS)
    is_frozen, goes_on = Event(), Event()

    def complete(connection: Connection) -> list[ClaimLost]:
        refused = tasks.complete(connection, hand.name, [(first, "1")])
        is_frozen.set()
        assert goes_on.wait(60)
        return refused

    with Database(url, idle_bound=0.2) as frozen, ThreadPoolExecutor(1) as threads:
        late = threads.submit(frozen.open().transact, complete)
        assert is_frozen.wait(30)
        assert hand.complete([second], "1") == []
        goes_on.set()
        assert late.result(60) == []
    assert hand.steps(run)["count_up"].succeeded == 2
