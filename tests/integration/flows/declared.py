"""Small flows for tests; workers in other processes import them from here."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.flows import Context, Flow, FlowStateReader

numbers = Flow("numbers")


@numbers.generator(batch=10, flush_every=0.05)
def count_up(context: Context, last: int) -> Iterator[int]:
    yield from range(last)


@count_up.handler(retries=2)
def double(context: Context, number: int) -> int:
    return 2 * number


@numbers.reduce(count_up)
def total(context: Context, doubled: Iterator[int]) -> int:
    return sum(doubled)


gated = Flow("gated")
offset = gated.state("offset", int, monotonic=True, external=True)
target = gated.state("target", int)


def is_reached(state: FlowStateReader) -> bool:
    return state[offset] >= state[target]


@gated.step(writes=target, reads=[offset, target])
def switch(context: Context, wanted: int) -> int:
    captured = context.set_state_once(target, wanted)
    state = context.wait_for_state(is_reached)
    return state[offset] - captured


approved = Flow("approved")


@approved.step
def ask(context: Context, question: str) -> str:
    return question


@approved.step(depends_on=ask, signal=bool)
def act(context: Context, question: str, approval: bool) -> str:
    return f"{question} {approval}"
