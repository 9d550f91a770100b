"""Client of flows: `start_flow` starts a run; a `FlowRun` waits for it, reads and controls it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event
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
    UnknownRunStep,
    listed,
)
from tidegate.flows.inspect import RunInspection, inspect
from tidegate.flows.model.codecs import Codec
from tidegate.flows.model.definition import ITEMS
from tidegate.flows.model.policies import FailurePolicy, Tolerate
from tidegate.flows.model.states import OVER, FlowState, StepState
from tidegate.flows.model.steps import StepKind
from tidegate.store import Notifications
from tidegate.store.core.notifications import poll_until
from tidegate.store.core.topics import flow_topic
from tidegate.store.flows import runs as store
from tidegate.store.flows.events import FlowEvent, flow_events

if TYPE_CHECKING:
    from tidegate.flows import Flow, StateKey, Step
    from tidegate.flows.model.definition import StepDefinition
    from tidegate.store import Connection, Database
    from tidegate.store.flows.runs import FlowRunInfo, StepResult

POLL_EVERY = 1.0
"""Seconds between two reads of a run without a notification."""
WAIT_TIMEOUT = 3600.0
"""Seconds to wait for a run or a result where the caller gives no timeout."""
MAX_KEY_BYTES = 2_000
"""Limit of a run's key; an index of PostgreSQL holds few more."""
CLIENT = "client"
"""Recorded as the sender of signals and the writer of keys where the caller gives no name."""
PLAIN = Codec("a value", Any)
"""Values of a run whose flow is not at hand."""
ENDED_WELL = frozenset({StepState.COMPLETED, StepState.SKIPPED})


def start_flow(
    database: Database,
    flow: Flow,
    input: object = None,  # noqa: A002  the flow's input
    key: str | None = None,
) -> FlowRun:
    """Start a run with this input; under a key that exists, return the run of that key.

    Without a key every call starts another run. Raises `FlowInputDiffers` when the run of this key
    was started with another input.
    """
    definition = flow.definition
    text = definition.input.encode(input)
    run_key = uuid4().hex if key is None else _checked_key(flow.name, key)
    run = database.transact(
        lambda c: store.begin_flow(c, flow.name, run_key, text, definition.as_rows())
    )
    return FlowRun(run, flow, database)


def flow_run(database: Database, run: int | str, flow: Flow | None = None) -> FlowRun:
    """The handle of an existing run: by its id, or by its key and its flow.

    Without `flow`, values are plain JSON. Raises `UnknownFlowRun` if there is no such run, or if it
    is a run of another flow.
    """

    def find(connection: Connection) -> FlowRunInfo:
        if isinstance(run, str):
            return store.flow_run_of_key(connection, flow.name if flow else "", run)
        return store.flow_run(connection, run)

    info = database.transact(find)
    if flow is not None and info.flow != flow.name:
        raise UnknownFlowRun(run)
    return FlowRun(info.id, flow, database)


@dataclass(frozen=True, slots=True)
class FlowRun:
    """Handle of one run of a flow; nothing of the run is kept in it."""

    id: int
    flow: Flow | None
    """The declaration; without it, results, signals and state are plain JSON values."""
    database: Database

    def status(self) -> FlowRunInfo:
        """The run's row: flow, key, state, cause, times."""
        return self.database.transact(lambda c: store.flow_run(c, self.id))

    def inspect(self) -> RunInspection:
        """Steps, items, state, gates and workers of the run."""
        return self.database.transact(lambda c: inspect(c, self.id))

    def wait(
        self,
        timeout: float = WAIT_TIMEOUT,
        notifications: Notifications | None = None,
        on_change: Callable[[FlowRunInfo], None] | None = None,
    ) -> FlowRunInfo:
        """Wait until the run is completed; raises `FlowFailed` or `FlowTimeout`.

        `notifications` saves a connection where the caller has one. `on_change` is called with the
        run whenever it may have changed, and once more when it is over.
        """
        info = self._wait(lambda it: it.state in OVER, timeout, notifications, on_change)
        if info.state is not FlowState.COMPLETED:
            raise self._failure(info)
        return info

    def result(self, step: Step[..., Any] | str, timeout: float = WAIT_TIMEOUT) -> Any:
        """Wait for a step; return its result, or an iterator over those of its successful items.

        A skipped step gives None, or no items. Raises `StepNotCompleted` when the step has failed
        or has not completed within the timeout, and `FlowRedefined` when the run was started with
        another kind of step under this name.
        """
        name, part = self._part(step)
        found = self._step_result(name, part)
        if found.state not in ENDED_WELL:
            found = self._wait_for_step(name, part, timeout)
        decode = (part.gives if part else PLAIN).decode
        if StepKind(found.kind) in ITEMS:
            return map(decode, store.all_item_results(self.database, self.id, name))
        return None if found.json is None else decode(found.json)

    def signal(self, step: Step[..., Any] | str, value: object, by: str = CLIENT) -> None:
        """Deliver a step's signal; the same signal again is harmless."""
        name, part = self._part(step)
        if part is None:
            self._step_result(name, None)  # raises if there is no such step
        codec = PLAIN if part is None else part.signal
        text = codec.encode(value) if codec else "null"
        self.database.transact(lambda c: store.signal_flow(c, self.id, name, text, by))

    def set_state(self, key: StateKey[Any] | str, value: object, by: str = CLIENT) -> None:
        """Write a state key that is declared external; wakes the steps whose gates read it."""
        name, codec = (key, PLAIN) if isinstance(key, str) else (key.name, key.codec)
        text = codec.encode(value)
        self.database.transact(lambda c: store.set_external_state(c, self.id, name, text, by))

    def tolerate(self, step: Step[..., Any] | str, policy: FailurePolicy) -> None:
        """Change how many items of a step may fail, while it runs or after it has failed."""
        limit = policy if isinstance(policy, Tolerate) else Tolerate()
        name = step if isinstance(step, str) else step.name
        self.database.transact(lambda c: store.tolerate(c, self.id, name, limit.count, limit.share))

    def cancel(self, reason: str = "canceled by a client") -> FlowState:
        """Cancel the run: tasks in flight are notified, no other is started."""
        return self.database.transact(lambda c: store.cancel_flow(c, self.id, reason))

    def pause(self) -> None:
        """Start no more tasks of the run; tasks in flight finish."""
        self.database.transact(lambda c: store.pause_flow(c, self.id))

    def resume(self) -> None:
        """Resume a paused run."""
        self.database.transact(lambda c: store.resume_flow(c, self.id))

    def retry(self) -> None:
        """Retry a failed run: everything that did not succeed runs again."""
        self.database.transact(lambda c: store.retry_flow(c, self.id))

    def events(self, after: int = 0, *, follow: bool = False) -> Iterator[FlowEvent]:
        """Events of the run behind the event `after`; with `follow`, until the run is over."""
        if not follow:
            yield from self._events(after)
            return
        with self._subscribed(self.status().flow) as changed:
            is_over = False
            while not is_over:
                # Read before the events: those that led to the end are then among them.
                is_over = self.status().state in OVER
                for event in self._events(after):
                    after = event.id
                    yield event
                if not is_over:
                    changed.wait(POLL_EVERY)
                    changed.clear()

    def _events(self, after: int) -> Iterator[FlowEvent]:
        while page := self.database.transact(lambda c, at=after: flow_events(c, self.id, at)):  # type: ignore[misc]
            yield from page
            after = page[-1].id

    # ── waiting ──

    def _wait(
        self,
        is_done: Callable[[FlowRunInfo], bool],
        timeout: float,
        notifications: Notifications | None = None,
        on_change: Callable[[FlowRunInfo], None] | None = None,
    ) -> FlowRunInfo:
        info = self.status()

        def look() -> FlowRunInfo | None:
            nonlocal info
            info = self.status()
            if on_change is not None:
                on_change(info)
            return info if is_done(info) else None

        with self._subscribed(info.flow, notifications) as changed:
            done = poll_until(look, changed, timeout, POLL_EVERY)
        if done is None:
            raise FlowTimeout(self.id, info.flow, info.state.value, timeout)
        return done

    def _wait_for_step(self, name: str, part: StepDefinition | None, timeout: float) -> StepResult:
        """The step once it has ended well; raises `StepNotCompleted` from the reason it has not."""
        found = self._step_result(name, part)

        def has_ended(info: FlowRunInfo) -> bool:
            nonlocal found
            found = self._step_result(name, part)
            return found.state in ENDED_WELL or info.state in OVER

        reason: Exception
        try:
            reason = self._failure(self._wait(has_ended, timeout))
        except FlowTimeout as late:
            reason = late
        if found.state in ENDED_WELL:
            return found
        raise StepNotCompleted(self.id, name, found.state.value) from reason

    @contextmanager
    def _subscribed(self, flow: str, notifications: Notifications | None = None) -> Iterator[Event]:
        """An event that is set whenever a run of this flow may have changed."""
        if notifications is None:
            with Notifications(self.database) as own, self._subscribed(flow, own) as changed:
                yield changed
            return
        changed = Event()
        unsubscribe = notifications.subscribe(flow_topic(flow), changed.set)
        try:
            yield changed
        finally:
            unsubscribe()

    def _failure(self, info: FlowRunInfo) -> FlowFailed:
        return FlowFailed(self.id, info.flow, info.state.value, info.cause or "no cause recorded")

    # ── steps ──

    def _part(self, step: Step[..., Any] | str) -> tuple[str, StepDefinition | None]:
        """The name of a step and, where the flow is known, its declaration."""
        name = step if isinstance(step, str) else step.name
        if self.flow is None:
            return name, None
        steps = self.flow.definition.steps
        if name not in steps:
            raise UnknownFlowStep(self.flow.at, self.flow.name, name, listed(list(steps)))
        return name, steps[name]

    def _step_result(self, name: str, part: StepDefinition | None) -> StepResult:
        """The stored step; raises `FlowRedefined` if it is not of the declared kind."""
        found = self.database.transact(lambda c: store.step_result(c, self.id, name))
        if found is None and part is None:
            steps = self.database.transact(lambda c: store.flow_progress(c, self.id))
            raise UnknownRunStep(self.id, name, listed([it.name for it in steps]))
        if found is None:
            raise FlowRedefined(self.id, name, "the run has no such step")
        if part and (StepKind(found.kind) in ITEMS) != (part.step.kind in ITEMS):
            raise FlowRedefined(self.id, name, f"there it is of kind {found.kind}")
        return found


def _checked_key(flow: str, key: object) -> str:
    """A key that the database can hold."""
    reason = _unfit(key)
    if reason:
        raise InvalidRunKey(flow, f"{key!r:.100}", reason)
    return str(key)


def _unfit(key: object) -> str:
    if not isinstance(key, str):
        return "it is not a str"
    if not key:
        return "it is empty; leave it out for a run that needs none"
    if "\0" in key or any("\ud800" <= char <= "\udfff" for char in key):
        return "PostgreSQL cannot hold all of its characters"
    too_long = len(key.encode()) > MAX_KEY_BYTES
    return f"it has more than {MAX_KEY_BYTES:,} bytes" if too_long else ""
