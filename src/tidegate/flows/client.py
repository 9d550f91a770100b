"""Beginning runs of flows, waiting for them, and reading what they gave."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tidegate.errors import (
    FlowFailed,
    FlowRedefined,
    FlowTimeout,
    InvalidRunKey,
    StepNotCompleted,
    UnknownFlowRun,
    UnknownFlowStep,
    listed,
)
from tidegate.flows.model.definition import ITEMS
from tidegate.flows.model.policies import FailurePolicy, Tolerate
from tidegate.flows.model.states import OVER, FlowState, StepState
from tidegate.flows.model.steps import StepKind
from tidegate.store import Notifications
from tidegate.store.core.topics import flow_topic
from tidegate.store.flows.runs import (
    FlowRun,
    StepResult,
    all_item_results,
    begin_flow,
    flow_run,
    set_external_state,
    signal_flow,
    step_result,
)
from tidegate.store.flows.runs import tolerate as change_tolerated

if TYPE_CHECKING:
    from tidegate.flows import Flow, StateKey, Step
    from tidegate.flows.model.definition import Part
    from tidegate.store import Connection, Database

LOOK_AT_RUN_EVERY = 1.0
"""Seconds between two looks at a run although nobody told that it has ended."""
LONGEST_KEY = 2_000
"""Bytes of a run's key; an index of PostgreSQL holds few more."""


def begin(database: Database, flow: Flow, value: object = None, key: str | None = None) -> int:
    """Begin a run with this input and answer its number.

    Under the same key it is the same run, however often it is begun; without one it is another.
    Raises `FlowInputDiffers` when the run of this key was begun with another input.
    """
    defined = flow.definition
    text = defined.input.encode(value)
    named = uuid4().hex if key is None else _checked_key(flow.name, key)
    return database.transact(lambda c: begin_flow(c, flow.name, named, text, defined.as_rows()))


def wait(
    database: Database,
    run: int,
    timeout: float,
    notifications: Notifications | None = None,
    look: Callable[[FlowRun], None] | None = None,
) -> FlowRun:
    """Wait until a run is completed; raises `FlowFailed` when it is not to be, or `FlowTimeout`.

    Whoever listens already may say so; otherwise somebody does for as long as this takes. `look`
    is called with the run whenever it may have moved, the last time when it is over.
    """
    if notifications is None:
        with Notifications(database) as listening:
            return wait(database, run, timeout, listening, look)
    look = look or _look_away
    news = Event()
    found = database.transact(lambda c: flow_run(c, run))
    unsubscribe = notifications.subscribe(flow_topic(found.flow), news.set)
    deadline = monotonic() + timeout
    try:
        look(found)
        while found.state not in OVER:
            left = deadline - monotonic()
            if left <= 0:
                raise FlowTimeout(run, found.flow, found.state.value, timeout)
            news.wait(min(left, LOOK_AT_RUN_EVERY))
            news.clear()
            found = database.transact(lambda c: flow_run(c, run))
            look(found)
    finally:
        unsubscribe()
    if found.state is not FlowState.COMPLETED:
        raise FlowFailed(run, found.flow, found.state.value, found.cause or "nobody said why")
    return found


def result(database: Database, flow: Flow, run: int, step: Step[..., Any] | str) -> Any:
    """What a step has given: its result, or an iterator over those of its items that succeeded.

    A step that was skipped gave None, or no items, as those see it that depend on it. Raises
    `StepNotCompleted` for one that has not ended well, and `UnknownFlowRun` for a run that is not
    there or is another flow's.
    """
    part = _part(flow, step if isinstance(step, str) else step.name)
    name = part.step.name
    found = database.transact(lambda c: _result(c, flow, run, part))
    if found.state not in {StepState.COMPLETED, StepState.SKIPPED}:
        raise StepNotCompleted(run, name, found.state.value)
    if part.step.kind in ITEMS:
        return (part.gives.decode(text) for text in all_item_results(database, run, name))
    return None if found.json is None else part.gives.decode(found.json)


def signal(database: Database, flow: Flow, run: int, step: str, value: object, by: str) -> None:
    """Give a step its signal."""
    codec = _part(flow, step).signal
    text = codec.encode(value) if codec is not None else "null"

    def give(connection: Connection) -> None:
        _check_flow(connection, flow, run)
        signal_flow(connection, run, step, text, by)

    database.transact(give)


def write_state(
    database: Database, run: int, key: StateKey[Any], value: object, writer: str
) -> None:
    """Write a key from outside that is declared external."""
    text = key.codec.encode(value)
    database.transact(lambda c: set_external_state(c, run, key.name, text, writer))


def tolerate(database: Database, run: int, step: str, policy: FailurePolicy) -> None:
    """Change how many items of a step may fail, while it runs or after it has failed."""
    borne = policy if isinstance(policy, Tolerate) else Tolerate()
    database.transact(lambda c: change_tolerated(c, run, step, borne.count, borne.share))


def _look_away(_: FlowRun) -> None:
    pass


def _checked_key(flow: str, key: object) -> str:
    """A key that the database can hold."""
    reason = _unfit(key)
    if reason:
        raise InvalidRunKey(flow, f"{key!r:.100}", reason)
    return str(key)


def _unfit(key: object) -> str:
    if not isinstance(key, str):
        return "it is no str"
    if not key:
        return "it is empty; leave it out for a run that needs none"
    if "\0" in key or any("\ud800" <= it <= "\udfff" for it in key):
        return "PostgreSQL cannot hold all of its characters"
    too_long = len(key.encode()) > LONGEST_KEY
    return f"it has more than {LONGEST_KEY:,} bytes" if too_long else ""


def _part(flow: Flow, step: str) -> Part:
    found = flow.definition.steps.get(step)
    if found is None:
        raise UnknownFlowStep(flow.at, flow.name, step, listed(list(flow.definition.steps)))
    return found


def _result(connection: Connection, flow: Flow, run: int, part: Part) -> StepResult:
    """What is stored of a step, which has to be in the run as it is in the flow."""
    _check_flow(connection, flow, run)
    name, kind = part.step.name, part.step.kind
    found = step_result(connection, run, name)
    if found is None or (StepKind(found.kind) in ITEMS) != (kind in ITEMS):
        there = "the run has no such step" if found is None else f"there it is of kind {found.kind}"
        raise FlowRedefined(run, name, there)
    return found


def _check_flow(connection: Connection, flow: Flow, run: int) -> None:
    """Raise `UnknownFlowRun` unless it is one of this flow."""
    if flow_run(connection, run).flow != flow.name:
        raise UnknownFlowRun(run)
