"""A worker performs flows as they are declared: steps, items, retries, waits, signals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from threading import Event, Lock
from time import monotonic

import pytest

from tests.integration.flows.conftest import Hand, Works
from tests.integration.flows.declared import approved, gated, numbers, offset
from tests.waiting import wait_until
from tidegate.errors import FlowFailed, FlowTimeout
from tidegate.flows import Backoff, Context, Flow, FlowStateReader, StepState, Tolerate
from tidegate.run.flows import begin, result, signal, wait, write_state
from tidegate.run.flows.context import TaskContext
from tidegate.store import Database, flow_tasks
from tidegate.store import flows as store

Start = Callable[..., Works]
QUICKLY = Backoff(first=0.01, longest=0.05)


@dataclass(frozen=True)
class Order:
    number: int
    day: date


class Calls:
    """Counts what happened, on any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.made: list[object] = []

    def note(self, call: object) -> int:
        with self._lock:
            self.made.append(call)
            return self.made.count(call)


def test_a_generator_its_handler_and_a_reduce_run_to_the_end(work: Start, hand: Hand) -> None:
    works = work(numbers)
    run = works.finish(numbers, 1234)
    assert result(works.database, numbers, run, "total") == 1234 * 1233
    assert list(result(works.database, numbers, run, "count_up"))[:3] == [0, 2, 4]
    found = hand.steps(run)["count_up"]
    assert (found.generating, found.spawned, found.succeeded) == ("complete", 1234, 1234)


def test_an_empty_stream_gives_an_empty_result(work: Start) -> None:
    works = work(numbers)
    assert works.give(numbers, 0, "total") == 0


def test_values_keep_their_types_from_step_to_step(work: Start) -> None:
    flow = Flow("orders")

    @flow.step
    def read(context: Context, day: date) -> list[Order]:
        return [Order(1, day), Order(2, day)]

    @flow.map_step(depends_on=read)
    def check(context: Context, order: Order) -> Order:
        assert isinstance(order.day, date)
        return order

    @flow.step(depends_on=check)
    def gather(context: Context, orders: list[Order]) -> dict[int, date]:
        return {it.number: it.day for it in orders}

    day = date(2025, 3, 1)
    assert work(flow).give(flow, day, "gather") == {1: day, 2: day}


def test_a_failing_handler_is_tried_again_until_it_succeeds(work: Start) -> None:
    flow, calls = Flow("flaky"), Calls()

    @flow.step(retries=3, backoff=QUICKLY)
    def flaky(context: Context) -> int:
        if calls.note("call") < 3:
            raise ValueError("not yet")
        return context.attempt

    assert work(flow).give(flow, None, "flaky") == 3


def test_a_run_fails_with_its_first_cause(work: Start, hand: Hand) -> None:
    flow, calls = Flow("broken"), Calls()

    @flow.step(retries=2, backoff=QUICKLY)
    def broken(context: Context) -> int:
        raise ValueError(f"cause {calls.note('call')}")

    works = work(flow)
    with pytest.raises(FlowFailed) as failed:
        works.finish(flow)
    assert failed.value.cause == "step broken: ValueError: cause 1"
    assert len(calls.made) == 3
    assert hand.steps(failed.value.run)["broken"].last_error == "ValueError: cause 3"


def test_a_generator_that_fails_fails_the_run_with_its_error(work: Start, hand: Hand) -> None:
    flow = Flow("broken")

    @flow.generator
    def count_up(context: Context) -> Iterator[int]:
        yield 1
        raise OSError("the source is gone")

    @count_up.handler
    def handle(context: Context, number: int) -> int:
        return number

    works = work(flow)
    with pytest.raises(FlowFailed, match="the source is gone"):
        works.finish(flow)
    assert hand.ask("SELECT generating FROM tidegate.flow_step") == [("failed",)]


def test_failures_within_tolerance_are_summarised(work: Start, hand: Hand) -> None:
    flow = Flow("tolerant")

    @flow.generator(on_fail=Tolerate(share=0.5))
    def count_up(context: Context) -> Iterator[int]:
        yield from range(10)

    @count_up.handler
    def odd(context: Context, number: int) -> int:
        if number % 2 == 0:
            raise ValueError(number)
        return number

    @flow.reduce(count_up)
    def total(context: Context, numbers: Iterator[int]) -> int:
        return sum(numbers)

    works = work(flow)
    run = works.finish(flow)
    assert result(works.database, flow, run, "total") == 25
    found = hand.steps(run)["count_up"]
    assert (found.succeeded, found.failed) == (5, 5)


def test_what_a_function_gives_that_is_not_of_its_type_is_a_failure(work: Start) -> None:
    flow, calls = Flow("wrong"), Calls()

    @flow.step(retries=5)
    def wrong(context: Context) -> int:
        calls.note("call")
        return "seven"  # type: ignore[return-value]  # that is the mistake

    with pytest.raises(FlowFailed, match="InvalidFlowValue"):
        work(flow).finish(flow)
    assert len(calls.made) == 1


def test_handlers_start_while_a_slow_generator_still_yields(work: Start) -> None:
    flow, handled = Flow("slow"), Event()

    @flow.generator(batch=1000, flush_every=0.05)
    def slow(context: Context) -> Iterator[int]:
        yield 1
        assert handled.wait(30), "the first item was handled only at the end"
        yield 2

    @slow.handler
    def handle(context: Context, number: int) -> int:
        handled.set()
        return number

    run = work(flow).finish(flow)
    assert run


def test_a_generator_waits_when_its_handlers_fall_behind(work: Start, hand: Hand) -> None:
    flow, released, yielded = Flow("ahead"), Event(), Calls()

    @flow.generator(batch=5, max_in_flight=10, flush_every=0.01)
    def ahead(context: Context) -> Iterator[int]:
        for number in range(200):
            yielded.note(number)
            yield number

    @ahead.handler
    def handle(context: Context, number: int) -> int:
        assert released.wait(30)
        return number

    works = work(flow, threads=1)
    run = begin(works.database, flow)
    wait_until(lambda: hand.steps(run)["ahead"].spawned >= 10)
    most = 10 + 5 + 2 * 5 + 1
    wait_until(lambda: len(yielded.made) >= 20)
    assert len(yielded.made) <= most
    released.set()
    wait(works.database, run, 60, works.wakeups)
    assert hand.steps(run)["ahead"].spawned == 200


def test_items_with_keys_are_handled_once_each(work: Start) -> None:
    flow, calls = Flow("keyed"), Calls()

    @flow.generator(key=str)
    def words(context: Context) -> Iterator[str]:
        yield from ["a", "b", "a", "c", "b"]

    @words.handler
    def handle(context: Context, word: str) -> str:
        calls.note(word)
        return word

    works = work(flow)
    assert list(works.give(flow, None, "words")) == ["a", "b", "c"]
    assert sorted(map(str, calls.made)) == ["a", "b", "c"]


def test_a_generator_goes_on_from_its_cursor_when_it_is_tried_again(work: Start) -> None:
    flow, calls = Flow("cursor"), Calls()

    @flow.generator(retries=1, backoff=QUICKLY)
    def pages(context: Context) -> Iterator[int]:
        first = context.cursor or 0
        calls.note(("from", first))
        for page in range(first, 4):
            yield from (10 * page + number for number in range(3))
            context.save_cursor(page + 1)
            if page == 1 and context.attempt == 1:
                raise OSError("gone")

    @pages.handler
    def handle(context: Context, number: int) -> int:
        return number

    works = work(flow)
    expected = [10 * page + number for page in range(4) for number in range(3)]
    assert list(works.give(flow, None, "pages")) == expected
    assert calls.made == [("from", 0), ("from", 2)]


def test_a_condition_that_does_not_hold_skips_the_step(work: Start, hand: Hand) -> None:
    flow = Flow("conditional")

    @flow.step
    def number(context: Context, given: int) -> int:
        return given

    @flow.step(depends_on=number, condition=lambda it: it > 10)
    def large(context: Context, number: int) -> str:
        return "large"

    @flow.step(depends_on=large)
    def report(context: Context, size: str | None) -> str:
        return size or "small"

    works = work(flow)
    assert works.give(flow, 11, "report") == "large"
    run = works.finish(flow, 3)
    assert result(works.database, flow, run, "report") == "small"
    assert hand.steps(run)["large"].state is StepState.SKIPPED


def test_a_step_waits_for_its_signal(work: Start, hand: Hand) -> None:
    works = work(approved)
    run = begin(works.database, approved, "really?")
    wait_until(lambda: hand.steps(run)["ask"].state is StepState.COMPLETED)
    with pytest.raises(FlowTimeout):
        wait(works.database, run, 0.1, works.wakeups)
    signal(works.database, approved, run, "act", True, "test")
    wait(works.database, run, 60, works.wakeups)
    assert result(works.database, approved, run, "act") == "really? True"


# ── state ──


def is_parked(hand: Hand, run: int) -> bool:
    asked = "SELECT state FROM tidegate.flow_task WHERE run_id = %s AND state = 'parked'"
    return len(hand.ask(asked, run)) == 1


def test_a_wait_holds_no_thread_and_is_woken_by_the_write_alone(work: Start, hand: Hand) -> None:
    works = work(gated, threads=1, look_every=600.0)
    runs = [begin(works.database, gated, number) for number in (5, 6)]
    for run in runs:
        wait_until(lambda run=run: is_parked(hand, run))  # type: ignore[misc]
    wait_until(lambda: works.worker.in_hand == 0)
    not_before = "SELECT bool_and(available_at < now()) FROM tidegate.flow_task"
    wait_until(lambda: hand.ask(not_before) == [(True,)])
    for run in runs:
        began = monotonic()
        write_state(works.database, run, offset, 7, "a feed")
        wait(works.database, run, 60, works.wakeups)
        assert monotonic() - began < 10.0  # nobody looks by itself
    assert result(works.database, gated, runs[0], "switch") == 2


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
    run = begin(works.database, flow)
    wait_until(lambda: is_parked(hand, run))
    write_state(works.database, run, position, 3, "a feed")
    wait_until(lambda: len(head.made) == 2)
    wait_until(lambda: is_parked(hand, run))
    write_state(works.database, run, position, 10, "a feed")
    wait(works.database, run, 60, works.wakeups)
    assert result(works.database, flow, run, "switch") == 10


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
    run = begin(works.database, flow)
    write_state(works.database, run, position, 7, "a feed")
    with pytest.raises(FlowFailed, match=r"'position', which stands at 7, last written by a feed"):
        wait(works.database, run, 60, works.wakeups)


def test_a_wait_ends_at_once_when_the_run_is_cancelled(work: Start, hand: Hand) -> None:
    works = work(gated)
    run = begin(works.database, gated, 5)
    wait_until(lambda: is_parked(hand, run))
    assert hand.do(store.cancel_flow, run, "enough").value == "canceled"


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


# ── cancelling, pausing, time ──


def test_a_cooperative_handler_notices_that_its_run_is_cancelled(work: Start, hand: Hand) -> None:
    flow, started = Flow("long"), Event()

    @flow.step
    def long(context: Context) -> int:
        started.set()
        wait_until(lambda: context.is_cancelled)
        context.check()
        return 1

    works = work(flow)
    run = begin(works.database, flow)
    assert started.wait(30)
    assert hand.do(store.cancel_flow, run, "enough").value == "canceling"
    wait_until(lambda: hand.state(run) == "canceled")


def test_a_generator_stops_when_its_run_is_cancelled(work: Start, hand: Hand) -> None:
    flow = Flow("endless")

    @flow.generator(batch=10, max_in_flight=100)
    def endless(context: Context) -> Iterator[int]:
        number = 0
        while True:
            yield (number := number + 1)

    @endless.handler
    def handle(context: Context, number: int) -> int:
        return number

    works = work(flow)
    run = begin(works.database, flow)
    wait_until(lambda: hand.steps(run)["endless"].succeeded > 50)
    hand.do(store.cancel_flow, run, "enough")
    wait_until(lambda: hand.state(run) == "canceled")
    found = hand.steps(run)["endless"]
    assert found.in_flight == 0


def test_a_paused_run_rests_and_goes_on(work: Start, hand: Hand) -> None:
    flow = Flow("endless")
    more = Event()

    @flow.generator(batch=10, flush_every=0.01)
    def stream(context: Context) -> Iterator[int]:
        yield from range(50)
        assert more.wait(30)
        yield from range(50, 100)

    @stream.handler
    def handle(context: Context, number: int) -> int:
        return number

    works = work(flow)
    run = begin(works.database, flow)
    wait_until(lambda: hand.steps(run)["stream"].succeeded == 50)
    hand.do(store.pause_flow, run)
    more.set()
    wait_until(lambda: hand.steps(run)["stream"].generating == "complete")
    assert hand.steps(run)["stream"].in_flight == 50
    hand.do(store.resume_flow, run)
    wait(works.database, run, 60, works.wakeups)
    assert hand.steps(run)["stream"].succeeded == 100


def test_a_handler_that_takes_too_long_is_given_up_and_tried_again(work: Start) -> None:
    flow, released = Flow("late"), Event()

    @flow.step(timeout=0.2, retries=1, backoff=QUICKLY)
    def late(context: Context) -> int:
        if context.attempt == 1:
            released.wait(30)
        return context.attempt

    works = work(flow)
    try:
        assert works.give(flow, None, "late") == 2
    finally:
        released.set()


def test_a_worker_never_runs_more_of_a_step_than_it_may(work: Start) -> None:
    flow, now, most = Flow("narrow"), Calls(), Calls()

    @flow.generator
    def numbers_(context: Context) -> Iterator[int]:
        yield from range(40)

    @numbers_.handler(concurrency=2)
    def handle(context: Context, number: int) -> int:
        most.note(now.note("in") - now.made.count("out"))
        now.note("out")
        return number

    work(flow, threads=8).finish(flow)
    assert max(map(int, map(str, most.made))) <= 2


def test_a_worker_that_drains_lets_another_go_on(work: Start, hand: Hand) -> None:
    flow, going = Flow("handed"), Event()

    @flow.generator(batch=10, flush_every=0.01)
    def stream(context: Context) -> Iterator[int]:
        for number in range(300):
            yield number
            if number == 100:
                going.wait(0.2)

    @stream.handler
    def handle(context: Context, number: int) -> int:
        return number

    first = work(flow)
    run = begin(first.database, flow)
    wait_until(lambda: hand.steps(run)["stream"].spawned >= 100)
    assert first.worker.drain(30)
    going.set()
    second = work(flow)
    wait(second.database, run, 60, second.wakeups)
    found = hand.steps(run)["stream"]
    assert (found.spawned, found.succeeded) == (300, 300)
    losses = "SELECT sum(losses)::integer FROM tidegate.flow_task"
    assert hand.ask(losses) == [(0,)]


def test_a_worker_that_lost_its_lease_begins_another_life(work: Start, hand: Hand) -> None:
    works = work(numbers, seconds=1.0)
    before = works.worker.name
    hand.ask("DELETE FROM tidegate.lease WHERE key = %s RETURNING 1", before)
    wait_until(lambda: works.worker.name != before)
    assert works.give(numbers, 20, "total") == 380


def test_a_flow_that_lost_a_step_leaves_it_to_workers_that_have_it(work: Start, hand: Hand) -> None:
    old, new = Flow("changing"), Flow("changing")

    for flow in (old, new):

        @flow.step
        def first(context: Context) -> int:
            return 1

    @old.step(depends_on="first")
    def second(context: Context, number: int) -> int:
        return number + 1

    run = begin(work(new).database, old)
    wait_until(lambda: hand.steps(run)["second"].state is StepState.RUNNING)
    works = work(old)
    wait(works.database, run, 60, works.wakeups)
    assert result(works.database, old, run, "second") == 2


def test_handlers_that_give_nothing_are_counted_too(work: Start) -> None:
    flow = Flow("nothing")

    @flow.generator
    def stream(context: Context) -> Iterator[None]:
        yield from [None] * 3

    @stream.handler
    def handle(context: Context, nothing: None) -> None:
        assert nothing is None

    @flow.step(depends_on=stream)
    def count(context: Context, nothings: list[None]) -> int:
        return len(nothings)

    assert work(flow).give(flow, None, "count") == 3


def test_a_claim_whose_answer_was_lost_is_put_back(work: Start, hand: Hand) -> None:
    works = work(numbers)
    run = hand.begin(numbers, "5")
    with hand.database.connect() as connection:
        while not flow_tasks.claim(connection, works.worker.name, {"numbers/count_up": 1}):
            if hand.steps(run)["count_up"].state is StepState.COMPLETED:
                run = hand.begin(numbers, "5")  # the worker was quicker
    wait(works.database, run, 60, works.wakeups)


def test_a_handler_that_listens_to_nobody_does_not_keep_its_run_canceling(
    work: Start, hand: Hand
) -> None:
    flow, started, released = Flow("deaf"), Event(), Event()

    @flow.step
    def deaf(context: Context) -> int:
        started.set()
        released.wait(60)
        return 1

    works = work(flow, threads=1)
    works.worker.grace = 0.1
    run = begin(works.database, flow)
    try:
        assert started.wait(30)
        hand.do(store.cancel_flow, run, "enough")
        wait_until(lambda: hand.state(run) == "canceled")
        other = begin(works.database, flow)
    finally:
        released.set()
    wait(works.database, other, 60, works.wakeups)


def test_the_context_is_what_was_promised(database: Database) -> None:
    claim = flow_tasks.Claim("me", 1, -1, 1, "gated/switch", 1, 1, None, None, None)
    context: Context = TaskContext(database, gated.definition, claim)
    assert context.identity == "gated/1/switch/-1"
