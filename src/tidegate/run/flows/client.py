"""Beginning runs of flows, waiting for them, and reading what they gave."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tidegate.errors import FlowFailed, FlowTimeout, UnknownFlowStep, listed
from tidegate.flows.definition import ITEMS
from tidegate.flows.policies import FailurePolicy, Tolerate
from tidegate.flows.states import OVER, FlowState
from tidegate.store import Wakeups
from tidegate.store.flows import (
    FlowRun,
    begin_flow,
    flow_run,
    item_results,
    set_external_state,
    signal_flow,
    step_result,
)
from tidegate.store.flows import tolerate as change_tolerated
from tidegate.store.topics import flow_topic

if TYPE_CHECKING:
    from tidegate.flows import Flow, StateKey, Step
    from tidegate.store import Database

LOOK_EVERY = 1.0
"""Seconds between two looks at a run although nobody told that it has ended."""


def begin(database: Database, flow: Flow, value: object = None, key: str | None = None) -> int:
    """Begin a run with this input and answer its number.

    Under the same key it is the same run, however often it is begun; without one it is another.
    """
    defined = flow.definition
    text = defined.input.encode(value)
    named = key if key is not None else uuid4().hex
    return database.transact(lambda c: begin_flow(c, flow.name, named, text, defined.as_rows()))


def wait(
    database: Database,
    run: int,
    timeout: float,
    wakeups: Wakeups | None = None,
    look: Callable[[FlowRun], None] | None = None,
) -> FlowRun:
    """Wait until a run is completed; raises `FlowFailed` when it is not to be, or `FlowTimeout`.

    Whoever listens already may say so; otherwise somebody does for as long as this takes. `look`
    is called with the run whenever it may have moved, the last time when it is over.
    """
    if wakeups is None:
        with Wakeups(database) as listening:
            return wait(database, run, timeout, listening, look)
    look = look or _look_away
    news = Event()
    found = database.transact(lambda c: flow_run(c, run))
    unsubscribe = wakeups.subscribe(flow_topic(found.flow), news.set)
    deadline = monotonic() + timeout
    try:
        look(found)
        while found.state not in OVER:
            left = deadline - monotonic()
            if left <= 0:
                raise FlowTimeout(run, found.flow, found.state.value, timeout)
            news.wait(min(left, LOOK_EVERY))
            news.clear()
            found = database.transact(lambda c: flow_run(c, run))
            look(found)
    finally:
        unsubscribe()
    if found.state is not FlowState.COMPLETED:
        raise FlowFailed(run, found.flow, found.state.value, found.cause or "nobody said why")
    return found


def result(database: Database, flow: Flow, run: int, step: Step[..., Any] | str) -> Any:
    """What a step has given: its result, or an iterator over those of its items."""
    name = step if isinstance(step, str) else step.name
    part = flow.definition.steps.get(name)
    if part is None:
        raise UnknownFlowStep(flow.at, flow.name, name, listed(list(flow.definition.steps)))
    if part.step.kind in ITEMS:
        return _items(database, run, name, part.gives.decode)
    found = database.transact(lambda c: step_result(c, run, name))
    return None if found is None or found.json is None else part.gives.decode(found.json)


def signal(database: Database, flow: Flow, run: int, step: str, value: object, by: str) -> None:
    """Give a step its signal."""
    codec = flow.definition.steps[step].signal
    text = codec.encode(value) if codec is not None else "null"
    database.transact(lambda c: signal_flow(c, run, step, text, by))


def write_state(
    database: Database, run: int, key: StateKey[Any], value: object, writer: str
) -> None:
    """Write a key from outside that is declared external."""
    text = key.codec.encode(value)
    database.transact(lambda c: set_external_state(c, run, key.name, text, writer))


def tolerate(database: Database, run: int, step: str, policy: FailurePolicy) -> None:
    """Change how many items of a step may fail, while it runs."""
    borne = policy if isinstance(policy, Tolerate) else Tolerate()
    database.transact(lambda c: change_tolerated(c, run, step, borne.count, borne.share))


def _look_away(_: FlowRun) -> None:
    pass


def _items(database: Database, run: int, step: str, decode: Any) -> Iterator[Any]:
    after = -1
    while page := database.transact(lambda c, at=after: item_results(c, run, step, at)):  # type: ignore[misc]
        yield from (decode(text) for _, text in page)
        after = page[-1][0]
