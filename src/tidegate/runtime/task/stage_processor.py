"""Stages as processors: what a stage of the plan does with the batches of each run.

A narrow stage answers every step. A stateful stage keeps the batches of a run (their names, not
their rows) by input, and answers when the run's END has come, or a checkpoint: then for that one
alone, and the next answer replaces it. Over durable channels batches stay on their channel until
the next barrier, which makes them part of the stage's state. Either way the work is handed to the
stage's desk, which makes Spark jobs of it. Nobody waits for a job: the other runs go on, and what
it made follows when it is done. A run whose job fails is named in the outcome.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from tidegate.dataflow import Barrier, Carrier, Event, StreamMessage, Watermark
from tidegate.errors import NotABatch, StageFailed, TidegateError
from tidegate.runtime.task.batch_sizing import FIRST, next_share
from tidegate.runtime.task.processors import Operator
from tidegate.runtime.task.stage_state import StageState
from tidegate.runtime.task.task_loop import Outcome, Snapshot, Step
from tidegate.spark import Batch, JobInput, passes_through
from tidegate.store import number_of

if TYPE_CHECKING:
    from tidegate.dataflow import Edge
    from tidegate.runtime.jobs.job_batcher import JobBatcher, ShardOutputs
    from tidegate.spark import PreparedStage
    from tidegate.store import RestoredEntry, Withdrawn


@dataclass(frozen=True, slots=True)
class SinkResult:
    """Rows of a sink; all results of a run together are what the sink publishes."""

    sink: str
    batch: Batch


@dataclass(slots=True)
class _Turn:
    """What one run has in a step: data for jobs, what they made, and what goes on behind that."""

    parts: dict[int, list[list[Batch]]] = field(default_factory=dict)
    """By the checkpoint that it is for, 0 for all, the batches of each input: a job each."""
    messages: list[StreamMessage] = field(default_factory=list)
    made: list[Event[object]] = field(default_factory=list)
    others: list[StreamMessage] = field(default_factory=list)
    snapshots: Snapshot = field(default_factory=Snapshot)
    """What has become part of the stage's state by a barrier in it."""
    settled: tuple[tuple[int, Batch], ...] | None = None
    """What has without one."""


@dataclass(frozen=True, slots=True)
class _AtWork:
    """A turn that waits for the job of one part."""

    step: Step
    turn: _Turn
    version: int
    inputs: tuple[tuple[Batch, ...], ...]
    answer: Future[ShardOutputs]
    started_at: float

    @property
    def bytes(self) -> int:
        return sum(batch.bytes for batches in self.inputs for batch in batches)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a checkpoint was answered with, and the files that it follows from."""

    version: int
    files: list[list[tuple[str, ...]]]
    made: ShardOutputs


class StageOperator(Operator):
    """One shard of a stage. Payloads are a `Batch` in, a `Batch` or a `SinkResult` out.

    The port of an event says which input of the stage it belongs to.
    """

    def __init__(
        self,
        name: str,
        shard: int,
        stage: PreparedStage,
        batcher: JobBatcher,
        compact: Callable[[int, JobInput], Future[ShardOutputs]] | None = None,
    ) -> None:
        super().__init__(name)
        self._compact = compact
        self._shard = shard
        self._stage = stage
        self._batcher = batcher
        self._kept: dict[str, StageState] = {}
        self._at_work: dict[str, _AtWork] = {}
        self._answered: dict[str, _Answer] = {}
        """By run what the last checkpoint was answered with."""
        self._work_done: Callable[[], None] = lambda: None
        self._share = FIRST

    @property
    def share(self) -> int:
        """Bytes of one run in a step; follows how long the last ones took."""
        return self._share

    @property
    def is_patient(self) -> bool:
        """Whether every step is a job, so that few large ones are better than many small ones."""
        return not (self._stage.is_stateful or passes_through(self._stage))

    def unsettled(self, edge: Edge, run: str) -> int:
        """What is kept has no effect until the next barrier."""
        kept = self._kept.get(run)
        return kept.messages if kept else 0

    def restore(self, run: str, state: Sequence[RestoredEntry]) -> None:
        """Have again what was kept at the last checkpoint."""
        self._kept.setdefault(run, StageState()).restore(state)

    def recall(self, run: str, watermarks: Mapping[Edge, int], forwarded: int | None) -> None:
        """Know again a watermark that waits for the next answer."""
        if self._stage.is_stateful:
            kept = self._kept.setdefault(run, StageState())
            kept.watermark, kept.forwarded = max(watermarks.values()), forwarded

    def withdraw(self, run: str, checkpoints: Withdrawn) -> None:
        """What one of these was answered with was never shown, and may be swept."""
        super().withdraw(run, checkpoints)
        last = self._answered.get(run)
        if last is not None and last.version in checkpoints:
            del self._answered[run]

    def is_waiting(self, edge: Edge, run: str) -> bool:
        """Whether a job is at work for this run."""
        return run in self._at_work

    def on_cancel(self, run: str) -> None:
        """Forget what is kept, withdraw what no job has taken, ignore what one may still make."""
        self._kept.pop(run, None)
        self._answered.pop(run, None)
        work = self._at_work.pop(run, None)
        if work is not None:
            work.answer.cancel()

    def attend(self, work_done: Callable[[], None]) -> None:
        """Say whenever a job is done."""
        self._work_done = work_done

    def handle(self, step: Step) -> Outcome:
        """All runs of the step together, each in its own order.

        Rows may go ahead of a watermark that came between them, never behind it.
        """
        outcome = Outcome()
        for run, turn in self._turns(step.messages, outcome.failed).items():
            if turn.parts and not passes_through(self._stage):
                self._hand_in(run, turn, step)
                outcome.later.add(run)
            else:
                for version, inputs in turn.parts.items():
                    batches = [(None, batch) for its in inputs for batch in its]
                    turn.made.extend(self._events(run, batches, version))
                self._let_go(run, turn, outcome)
        return outcome

    def finished(self) -> Sequence[tuple[Step, Outcome]]:
        """The steps of all runs whose jobs are done, as one."""
        answered = {run: work for run, work in self._at_work.items() if work.answer.done()}
        outcome = Outcome()
        for run, work in answered.items():
            del self._at_work[run]
            self._conclude(run, work, outcome)
        done = [work for run, work in answered.items() if run not in self._at_work]
        messages = tuple(message for work in done for message in work.turn.messages)
        return [(Step(Carrier.DATA, done[0].step.edge, messages), outcome)] if done else ()

    def _turns(
        self, messages: Sequence[StreamMessage], failed: dict[str, TidegateError]
    ) -> dict[str, _Turn]:
        """What each run has in a step; those with something that is no batch are `failed`."""
        turns: dict[str, _Turn] = defaultdict(_Turn)
        for message in messages:
            try:
                self._add(message, turns[message.run])
            except NotABatch as wrong:
                failed[message.run] = wrong
        for run in failed:
            del turns[run]
            self._kept.pop(run, None)
        for run, turn in turns.items():
            kept = self._kept.get(run)
            if kept is not None and kept.has_enough:
                turn.settled = kept.settle()
        return turns

    def _add(self, message: StreamMessage, turn: _Turn) -> None:
        turn.messages.append(message)
        if self._stage.is_stateful:
            self._keep(message, turn)
        elif isinstance(message, Event):
            self._take(message, turn)
        elif not (isinstance(message, Barrier) and self.is_void(message)):
            turn.others.append(message)

    def _take(self, event: Event[object], turn: _Turn) -> None:
        """What was made for an earlier checkpoint, whose barrier never came, is of no use."""
        batch = _batch(event)
        for earlier in [it for it in turn.parts if 0 < it < event.version]:
            del turn.parts[earlier]
        turn.parts.setdefault(event.version, self._nothing())[event.port].append(batch)

    def _keep(self, message: StreamMessage, turn: _Turn) -> None:
        """A watermark promises nothing before the rows have gone, so the next answer takes it."""
        kept = self._kept.setdefault(message.run, StageState())
        kept.messages += 1
        if isinstance(message, Event):
            kept.add(message.port, _batch(message), message.version)
        elif isinstance(message, Watermark):
            kept.watermark = message.time
        elif isinstance(message, Barrier) and self.is_void(message):
            turn.settled = kept.settle()  # whoever is late has to get on all the same
        elif isinstance(message, Barrier) and (message.is_end or message.is_checkpoint):
            self._answer(message, kept, turn)
        elif isinstance(message, Barrier):
            turn.others.append(message)

    def _answer(self, barrier: Barrier, kept: StageState, turn: _Turn) -> None:
        """A quiet checkpoint is not answered: what is kept becomes part of the state."""
        if not barrier.is_unpublished:
            version = 0 if barrier.is_end else barrier.id
            inputs = turn.parts[version] = self._nothing()
            for port, batch in kept.up_to(version):
                inputs[port].append(batch)
            turn.others.extend(Watermark(time, barrier.run) for time in kept.take_watermark())
        turn.others.append(barrier)
        if barrier.is_end:
            del self._kept[barrier.run]
        else:
            turn.snapshots = kept.snapshot(barrier.id)
            if self._compact is not None:
                kept.compact(barrier.id, partial(self._compacted, number_of(barrier.run)))

    def _compacted(self, run: int, port: int, batches: Sequence[Batch]) -> Future[ShardOutputs]:
        assert self._compact is not None
        return self._compact(port, JobInput(run, self._shard, (tuple(batches),)))

    def _hand_in(self, run: str, turn: _Turn, step: Step) -> None:
        """The next part of a turn. A desk has one order of a run and shard at a time."""
        version = next(iter(turn.parts))
        inputs = tuple(tuple(batches) for batches in turn.parts.pop(version))
        answer = self._known_answer(run, inputs)
        if answer is None:
            answer = self._batcher.submit(JobInput(number_of(run), self._shard, inputs))
        self._at_work[run] = _AtWork(step, turn, version, inputs, answer, monotonic())
        answer.add_done_callback(lambda _: self._work_done())

    def _known_answer(
        self, run: str, inputs: tuple[tuple[Batch, ...], ...]
    ) -> Future[ShardOutputs] | None:
        """The last answer, where nothing has changed since: the files are the same, so the rows."""
        last = self._answered.get(run)
        if last is None or last.files != _files(inputs):
            return None
        known: Future[ShardOutputs] = Future()
        known.set_result(last.made)
        return known

    def _conclude(self, run: str, work: _AtWork, outcome: Outcome) -> None:
        """What a job made goes out when all parts of its turn are done."""
        turn = work.turn
        try:
            made = work.answer.result()
        except StageFailed as failure:
            outcome.failed[run] = failure
            self._kept.pop(run, None)
            return
        turn.made.extend(self._events(run, made.items(), work.version))
        if work.version:
            self._answered[run] = _Answer(work.version, _files(work.inputs), made)
        self._adapt(work.bytes, monotonic() - work.started_at)
        if turn.parts:
            self._hand_in(run, turn, work.step)
        else:
            self._let_go(run, turn, outcome)

    def _let_go(self, run: str, turn: _Turn, outcome: Outcome) -> None:
        """What was made for a run goes out, and what came behind it."""
        outcome.data.extend((*turn.made, *turn.others))
        outcome.snapshots[run] = turn.snapshots
        if turn.settled is not None:
            outcome.settled[run] = turn.settled
        if any(isinstance(it, Barrier) and it.is_end for it in turn.others):
            self._answered.pop(run, None)

    def _events(
        self, run: str, made: Iterable[tuple[int | None, Batch]], version: int
    ) -> Iterable[Event[object]]:
        sink = self._stage.sink
        for shard, batch in made:
            payload = batch if sink is None else SinkResult(sink, batch)
            yield Event(payload, run, shard, version=version)

    def _adapt(self, taken: int, seconds: float) -> None:
        if taken and not self._stage.is_stateful:
            self._share = next_share(self._share, taken, seconds)

    def _nothing(self) -> list[list[Batch]]:
        return [[] for _ in self._stage.inputs]


def _files(inputs: Iterable[Iterable[Batch]]) -> list[list[tuple[str, ...]]]:
    """By input what all batches consist of, in whatever order they came by several channels."""
    return [sorted(batch.files for batch in batches) for batches in inputs]


def _batch(event: Event[object]) -> Batch:
    """The batch of an event; on a durable channel it is JSON."""
    if isinstance(event.payload, Batch):
        return event.payload
    if isinstance(event.payload, Mapping):
        return msgspec.convert(event.payload, Batch)
    raise NotABatch(kind=type(event.payload).__name__)
