"""The context of one attempt at a task: its identity, cancellation, and the state of its run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Event as Flag
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from tidegate.errors import (
    CursorRefused,
    FlowCancelled,
    FlowRedefined,
    StateNeverCame,
    StateUndeclared,
    listed,
)
from tidegate.flows.model.context import POLL_INTERVAL
from tidegate.flows.model.gates import Standing, StateGate, keys_of, standing
from tidegate.flows.model.keys import FlowStateReader, NotThereYet, StateKey, StateValue
from tidegate.flows.worker.pipeline_runs import PipelineRequest, PipelineRuns, run_name
from tidegate.flows.worker.stopwatch import Stopwatch
from tidegate.flows.worker.suspend import Suspended
from tidegate.store.flows import tasks as flow_tasks
from tidegate.store.flows.runs import flow_state

if TYPE_CHECKING:
    from tidegate.flows.model.context import Data
    from tidegate.flows.model.definition import Definition, StepDefinition
    from tidegate.flows.model.pipeline_result import Released
    from tidegate.pipeline import Pipeline
    from tidegate.store import Connection, Database
    from tidegate.store.flows.tasks import Claim

T = TypeVar("T")
GATE = 0
"""The number of the wait before a step starts."""


class TaskContext:
    """Implements `tidegate.flows.Context` on the database."""

    def __init__(
        self,
        database: Database,
        definition: Definition,
        claim: Claim,
        pipelines: PipelineRuns | None = None,
    ) -> None:
        self.database = database
        self._pipelines = pipelines or PipelineRuns(database)
        self.pipeline_runs: set[tuple[str, str]] = set()
        """The pipeline runs of this attempt, by pipeline and name."""
        self._definition = definition
        self.claim = claim
        self.stopwatch = Stopwatch()
        self._connection: Connection | None = None
        """The transaction of `with_state` while its work runs."""
        self.step = claim.queue.partition("/")[2].removesuffix("[]")
        self._waits = GATE
        self.suspended: Suspended | None = None
        """The wait at which the function has to leave."""
        self._is_cancelled = False
        self._cancelled: Flag | None = None  # made on demand: most tasks are short
        self._reason = ""
        self._cursor: Any = None
        self.on_cursor: Callable[[object], None] | None = None
        """Receives the cursors that a generator saves."""
        self.before_write: Callable[[], None] = _nothing
        """Stores what has to precede a write of state."""

    @property
    def part(self) -> StepDefinition:
        """The definition of the step."""
        return self._definition.steps[self.step]

    @property
    def run(self) -> int:
        """The id of the run."""
        return self.claim.run

    @property
    def position(self) -> int:
        """The position of the item."""
        return self.claim.position

    @property
    def attempt(self) -> int:
        """The number of the attempt, from 1."""
        return self.claim.attempt

    @property
    def identity(self) -> str:
        """Unique to the task, the same in every attempt."""
        return f"{self._definition.name}/{self.run}/{self.step}/{self.position}"

    # ── cancelling ──

    @property
    def is_cancelled(self) -> bool:
        """Whether the result is not needed any more."""
        return self._is_cancelled

    def check(self) -> None:
        """Raise `FlowCancelled` if the task is cancelled."""
        if self.is_cancelled:
            raise FlowCancelled(self.run, self.step, self._reason)

    def cancel(self, reason: str) -> None:
        """Cancel the task; its function can read that."""
        self._reason = self._reason or reason
        self._is_cancelled = True
        if self._cancelled is not None:
            self._cancelled.set()

    def wait_cancelled(self, seconds: float) -> bool:
        """Wait so long for the cancellation; whether it came."""
        self._cancelled = self._cancelled or Flag()
        return self._is_cancelled or self._cancelled.wait(seconds)

    # ── state ──

    def get_state(self, key: StateKey[T] | str) -> Any:
        """The value of a key; None if it was never written."""
        step = self.part.step
        _, values = self._state()
        return self._reader((*step.reads, *step.writes), values).get(key)

    def set_state(self, key: StateKey[T] | str, value: T) -> None:
        """Write a key that the step has declared in `writes`."""
        self._write(key, value, once=False)

    def set_state_once(self, key: StateKey[T] | str, value: T) -> T:
        """Write a key unless it has a value; returns the value it has."""
        return self._write(key, value, once=True)

    def with_state(
        self, values: Mapping[StateKey[Any] | str, object], work: Callable[[Any], T]
    ) -> T:
        """Do `work` and write these keys in the same transaction."""
        texts = {self._writable(key): self._text(key, value) for key, value in values.items()}
        if self._connection is None:
            self.before_write()

        def both(connection: Connection) -> T:
            with self._joined(connection):
                result = work(connection)
                for name, text in texts.items():
                    flow_tasks.set_state(connection, self.claim, name, text, self.step, once=False)
            return result

        return self._transact(both)

    @contextmanager
    def _joined(self, connection: Connection) -> Iterator[None]:
        before, self._connection = self._connection, connection
        try:
            with connection.transaction():  # a nested one becomes a savepoint of it
                yield
        finally:
            self._connection = before

    def _transact(self, work: Callable[[Connection], T]) -> T:
        """One transaction, or a savepoint inside of `with_state`.

        A second connection per task could exhaust the pool while the first are held.
        """
        if self._connection is None:
            return self.database.transact(work)
        with self._connection.transaction():
            return work(self._connection)

    def wait_for_state(
        self,
        predicate: Callable[[FlowStateReader], bool],
        poll_interval: float = POLL_INTERVAL,
        timeout: float | None = None,
    ) -> FlowStateReader:
        """Return when the predicate holds; until then, suspend the task and start it again."""
        self._waits += 1
        return self._wait(predicate, self._waits, poll_interval, timeout)

    def pass_gate(self) -> None:
        """Wait for the gate of the step, before it starts."""
        gate = self.part.step.gate
        if gate.wait_for is not None:
            self._wait(gate.wait_for, GATE, POLL_INTERVAL, gate.wait_timeout)

    def _wait(
        self,
        predicate: Callable[[FlowStateReader], bool],
        number: int,
        poll: float,
        timeout: float | None,
    ) -> FlowStateReader:
        self.check()
        if not self.part.step.reads:  # no write would ever wake it
            raise StateUndeclared(f"step {self.step!r}", "wait for", "*")
        seen, values = self._state()
        reader = self._reader(self.part.step.reads, values)
        missing: str | None = None
        try:
            if predicate(reader):
                self.pass_wait(number)
                return reader
        except NotThereYet as absent:
            missing = absent.key
        conditions = predicate.conditions if isinstance(predicate, StateGate) else ()
        waited = self.claim.waited if self.claim.wait_number == number else None
        if timeout is not None and waited is not None and waited >= timeout:
            far = _how_far(predicate, reader, values)
            key = far[0].condition.key if far else missing or (reader.asked or [""])[0]
            raise self._timed_out(waited, key, values.get(key, StateValue(None)), far)
        keys = keys_of(conditions) or self.part.step.reads
        self.before_write()  # the writer of the key may wait for what was yielded
        self.suspended = Suspended(conditions, keys, seen, number, poll, timeout)
        raise self.suspended

    def pass_wait(self, number: int) -> None:
        """Continue behind a wait, if the task was suspended there."""
        if self.claim.wait_number == number:
            self._transact(lambda c: flow_tasks.pass_wait(c, self.claim))

    def _timed_out(
        self, waited: float, key: str, stored: StateValue, far: list[Standing]
    ) -> StateNeverCame:
        return StateNeverCame(
            self.run, self.step, waited, key, stored.json or "nothing", stored.writer or "no step",
            stored.age, tuple([it.distance for it in far[:1]] + [str(it) for it in far[1:]]),
        )  # fmt: skip

    def _state(self) -> tuple[int, dict[str, StateValue]]:
        return self._transact(lambda c: flow_state(c, self.run))

    def _reader(self, keys: Iterable[str], values: dict[str, StateValue]) -> FlowStateReader:
        known = {name: self._definition.keys[name] for name in keys}
        if absent := [name for name in known if name not in values]:
            reason = f"the run has no state {listed([repr(name) for name in absent])}"
            raise FlowRedefined(self.run, self.step, reason)
        return FlowStateReader(self.step, known, values)

    def _write(self, key: StateKey[T] | str, value: T, *, once: bool) -> T:
        name, text = self._writable(key), self._text(key, value)
        if self._connection is None:
            self.before_write()
        kept = self._transact(
            lambda c: flow_tasks.set_state(c, self.claim, name, text, self.step, once=once)
        )
        decoded: T = self._definition.keys[name].codec.decode(kept)
        return decoded

    def _writable(self, key: StateKey[Any] | str) -> str:
        name = key if isinstance(key, str) else key.name
        if name not in self.part.step.writes:
            raise StateUndeclared(f"step {self.step!r}", "write", name)
        return name

    def _text(self, key: StateKey[Any] | str, value: object) -> str:
        return self._definition.keys[self._writable(key)].codec.encode(value)

    # ── pipelines ──

    def run_pipeline(
        self, pipeline: Pipeline, data: Data, *, name: str = "", timeout: float | None = None
    ) -> Released:
        """Return the results of a run; until it is closed, suspend the task and start it again."""
        self.check()
        self._waits += 1
        run = run_name(self._definition.name, self.run, self.step, self.position, name)
        request = PipelineRequest(pipeline, run, data, self._waits, timeout)
        released = self._pipelines.released(self, request)
        self.pass_wait(self._waits)
        return released

    # ── generators ──

    @property
    def cursor(self) -> Any:
        """The cursor saved last."""
        return self._cursor

    def restore_cursor(self, text: str | None) -> None:
        """Set the cursor of an earlier attempt."""
        self._cursor = None if text is None else msgspec.json.decode(text)

    def save_cursor(self, value: object) -> None:
        """Save where to resume behind what was yielded so far."""
        if self.on_cursor is None:
            raise CursorRefused(self.run, self.step)
        self._cursor = value
        self.on_cursor(value)


def _nothing() -> None:
    pass


def _how_far(
    predicate: Callable[[FlowStateReader], bool],
    reader: FlowStateReader,
    values: dict[str, StateValue],
) -> list[Standing]:
    """The conditions of a gate that do not hold; unknown for a plain function."""
    if not isinstance(predicate, StateGate):
        return []
    return [standing(it, values) for it in predicate.missing(reader)]
