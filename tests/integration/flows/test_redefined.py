"""A flow is declared otherwise while its runs are under way: they end right, or say why not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.integration.flows.calls import QUICKLY, Calls, Start
from tests.integration.flows.conftest import Hand
from tests.waiting import wait_until
from tidegate.errors import FlowFailed
from tidegate.flows import Context, Flow, StepState
from tidegate.flows.client import start_flow
from tidegate.store.flows import runs as store

Declare = Callable[[Flow], None]


def plain(flow: Flow) -> None:
    @flow.step
    def first(context: Context) -> list[int]:
        return [1, 2]


def generator(flow: Flow) -> None:
    @flow.generator
    def first(context: Context) -> Iterator[int]:
        yield from ()

    @first.handler
    def handle(context: Context, number: int) -> int:
        return number


def mapped(flow: Flow) -> None:
    @flow.step
    def listed(context: Context) -> list[int]:
        return [1, 2]

    @flow.map_step(depends_on=listed)
    def first(context: Context, number: int) -> int:
        return number


def declared(*parts: Declare) -> Flow:
    flow = Flow("changing")
    for part in parts:
        part(flow)
    return flow


@pytest.mark.parametrize(
    ("before", "after"),
    [(plain, generator), (generator, plain), (mapped, plain), (mapped, generator)],
)
def test_a_step_of_another_kind_fails_the_run_with_the_reason(
    work: Start, hand: Hand, before: Declare, after: Declare
) -> None:
    old, new = declared(before), declared(after)
    run = start_flow(hand.database, old)
    hand.complete(hand.claim("changing/listed"), "[1, 2]")
    works = work(new)
    with pytest.raises(FlowFailed, match=r"FlowRedefined.*first.*of kind"):
        run.wait(60, works.notifications)
    works.worker.close()
    hand.do(store.retry_flow, run.id)
    works = work(old)
    run.wait(60, works.notifications)


def test_a_dependency_that_a_run_does_not_have_fails_it_and_is_named(
    work: Start, hand: Hand
) -> None:
    def more(flow: Flow) -> None:
        @flow.map_step(depends_on="first")
        def extra(context: Context, number: int) -> int:
            return number

    def last(*depends: str, many: bool) -> Declare:
        def declare(flow: Flow) -> None:
            if many:

                @flow.step(depends_on=depends, name="last")
                def sums(context: Context, numbers: list[int], others: list[int]) -> int:
                    return sum(others)
            else:

                @flow.step(depends_on=depends, name="last")
                def total(context: Context, numbers: list[int]) -> int:
                    return sum(numbers)

        return declare

    old = declared(plain, last("first", many=False))
    new = declared(plain, more, last("first", "extra", many=True))
    run = start_flow(hand.database, old)
    works = work(new)
    with pytest.raises(FlowFailed, match=r"FlowRedefined.*last.*'extra'"):
        run.wait(60, works.notifications)


def test_a_step_that_was_added_is_for_runs_that_begin_later(work: Start, hand: Hand) -> None:
    def more(flow: Flow) -> None:
        @flow.step(depends_on="first")
        def last(context: Context, numbers: list[int]) -> int:
            return sum(numbers)

    old, new = declared(plain), declared(plain, more)
    run = start_flow(hand.database, old)
    works = work(new)
    run.wait(60, works.notifications)
    assert list(hand.steps(run.id)) == ["first"]
    assert works.give(new, None, "last") == 3


def test_a_key_that_a_run_does_not_have_is_not_waited_for(work: Start, hand: Hand) -> None:
    def step(key: str) -> Declare:
        def declare(flow: Flow) -> None:
            flow.state(key, int, external=True)

            @flow.step(reads=key)
            def first(context: Context) -> int:
                return int(context.wait_for_state(lambda it: it[key] > 0)[key])

        return declare

    old, new = declared(step("before")), declared(step("after"))
    run = start_flow(hand.database, old)
    works = work(new)
    with pytest.raises(FlowFailed, match=r"FlowRedefined.*'after'"):
        run.wait(60, works.notifications)


def stream(type_: Any, calls: Calls, retries: int = 0) -> Declare:
    def declare(flow: Flow) -> None:
        def items(context: Context) -> Iterator[type_]:
            yield from (type_(number) for number in range(3))

        def handle(context: Context, item: type_) -> str:
            calls.note(item)
            if calls.made.count(item) <= 2 and item == type_(1):
                raise ValueError("not yet")
            return str(item)

        for function in (items, handle):
            function.__annotations__.update(
                {
                    key: {"Iterator[type_]": Iterator[type_], "type_": type_}.get(value, value)
                    for key, value in function.__annotations__.items()
                }
            )
        flow.generator(items).handler(retries=retries, backoff=QUICKLY)(handle)

    return declare


def test_items_that_are_of_the_type_no_more_fail_at_once_and_can_be_tried_again(
    work: Start, hand: Hand
) -> None:
    calls = Calls()
    old, new = declared(stream(int, calls, 3)), declared(stream(str, calls, 3))
    run = start_flow(hand.database, old)
    (claim,) = hand.claim("changing/items")
    hand.spawn(claim, range(3))
    works = work(new)
    with pytest.raises(FlowFailed, match=r"InvalidFlowValue.*Expected `str`, got `int`"):
        run.wait(60, works.notifications)
    assert calls.made == []
    works.worker.close()
    hand.do(store.retry_flow, run.id)
    works = work(old)
    run.wait(60, works.notifications)
    assert list(run.result("items")) == ["0", "1", "2"]


def test_a_run_keeps_the_retries_that_it_began_with(work: Start, hand: Hand) -> None:
    calls = Calls()
    old, new = declared(stream(int, calls, 2)), declared(stream(int, calls, 0))
    run = start_flow(hand.database, old)
    works = work(new)
    run.wait(60, works.notifications)
    assert calls.made.count(1) == 3


def test_old_and_new_workers_share_what_both_know(work: Start, hand: Hand) -> None:
    def renamed(name: str) -> Declare:
        def declare(flow: Flow) -> None:
            @flow.step(depends_on="first", name=name)
            def last(context: Context, numbers: list[int]) -> str:
                return name

        return declare

    old, new = declared(plain, renamed("old_end")), declared(plain, renamed("new_end"))
    works = [work(old), work(new)]
    runs = [(flow, start_flow(hand.database, flow)) for flow in (old, new) * 5]
    for flow, run in runs:
        run.wait(60, works[0].notifications)
        name = "old_end" if flow is old else "new_end"
        assert run.result(name) == name


def test_a_gate_that_was_removed_lets_suspended_runs_through(work: Start, hand: Hand) -> None:
    def gated(flow: Flow) -> None:
        go = flow.state("go", bool, external=True)

        @flow.step(wait_for=lambda it: it[go], reads=go)
        def first(context: Context) -> list[int]:
            return [3]

    old, new = declared(gated), declared(plain)
    works = work(old)
    run = start_flow(hand.database, old)
    asked = "SELECT state FROM tidegate.flow_task WHERE run_id = %s"
    wait_until(lambda: hand.ask(asked, run.id) == [("suspended",)])
    works.worker.close()
    works = work(new)
    run.set_state(old.keys["go"], True, "me")
    run.wait(60, works.notifications)
    assert run.result("first") == [1, 2]
    assert hand.steps(run.id)["first"].state is StepState.COMPLETED
