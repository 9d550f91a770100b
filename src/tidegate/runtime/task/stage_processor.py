"""Process: one shard of a stage, which runs Spark jobs over the batches of each run.

A stateless stage runs a job for every step. A stateful stage collects the batches of a run by input
(their file names, not their rows) and runs a job when the run's END arrives, or a checkpoint: then
the output is for that checkpoint alone, and the next one replaces it. Batches stay on their channel
until the next barrier makes them part of the stage's state.

Jobs are submitted to the stage's job batcher. The step does not wait for a job: other runs go on,
and its output follows with `finished`. A run whose job fails is named in the output.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from tidegate.dataflow import Barrier, Batch, Event, SinkResult, StreamMessage, Watermark
from tidegate.errors import NotABatch, StageFailed, TidegateError
from tidegate.runtime.task.batch_sizing import FIRST, next_step_bytes
from tidegate.runtime.task.processor import Processor, Snapshot, StepInput, StepOutput
from tidegate.runtime.task.stage_state import StageState
from tidegate.spark import JobInput, passes_through
from tidegate.store import number_of

if TYPE_CHECKING:
    from tidegate.dataflow import Edge
    from tidegate.runtime.jobs.job_batcher import JobBatcher, ShardOutputs
    from tidegate.spark import PreparedStage
    from tidegate.store import RestoredEntry, WithdrawnCheckpoints


@dataclass(slots=True)
class _RunStep:
    """The part of one run in a step: batches for jobs, their output, and what follows it."""

    messages: list[StreamMessage] = field(default_factory=list)
    """The messages of the run in the step."""
    inputs: dict[int, list[list[Batch]]] = field(default_factory=dict)
    """By checkpoint, 0 for permanent output, the batches of each input: a job each."""
    produced: list[Event[object]] = field(default_factory=list)
    following: list[StreamMessage] = field(default_factory=list)
    """Watermarks and barriers that leave after the output."""
    snapshot: Snapshot = field(default_factory=Snapshot)
    """What a barrier in the step made part of the state."""
    state: tuple[tuple[int, Batch], ...] | None = None
    """What was made part of the state without a barrier."""


@dataclass(frozen=True, slots=True)
class _RunningJob:
    """A part of a step that waits for its job."""

    edge: Edge
    part: _RunStep
    version: int
    inputs: tuple[tuple[Batch, ...], ...]
    result: Future[ShardOutputs]
    started_at: float

    @property
    def bytes(self) -> int:
        return sum(batch.bytes for batches in self.inputs for batch in batches)


@dataclass(frozen=True, slots=True)
class _CachedOutput:
    """The output for the last checkpoint, and the files that it was computed from."""

    version: int
    files: list[list[tuple[str, ...]]]
    outputs: ShardOutputs


class StageProcessor(Processor):
    """One shard of a stage. Payloads are a `Batch` in, a `Batch` or a `SinkResult` out.

    The port of an event tells which input of the stage it belongs to.
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
        self._shard = shard
        self._stage = stage
        self._batcher = batcher
        self._compact = compact
        self._states: dict[str, StageState] = {}
        self._jobs: dict[str, _RunningJob] = {}
        self._cached: dict[str, _CachedOutput] = {}
        self._job_done: Callable[[], None] = lambda: None
        self._step_bytes = FIRST

    # ── one step ──

    def process(self, step: StepInput) -> StepOutput:
        """Submit a job for each run that needs one; the output of the others follows at once.

        Rows may overtake a watermark that arrived between them; a watermark never overtakes rows.
        """
        output = StepOutput()
        for run, part in self._parts(step.messages, output.failed).items():
            if part.inputs and not passes_through(self._stage):
                self._submit(run, part, step.edge)
                output.deferred.add(run)
            else:
                for version, inputs in part.inputs.items():
                    unchanged = [(None, batch) for batches in inputs for batch in batches]
                    part.produced.extend(self._events(run, unchanged, version))
                self._emit(run, part, output)
        return output

    def finished(self) -> Sequence[tuple[StepInput, StepOutput]]:
        """The parts of all runs whose jobs are done, as one step."""
        finished = {run: job for run, job in self._jobs.items() if job.result.done()}
        output = StepOutput()
        for run, job in finished.items():
            del self._jobs[run]
            self._collect(run, job, output)
        done = [job for run, job in finished.items() if run not in self._jobs]
        messages = tuple(message for job in done for message in job.part.messages)
        return [(StepInput(done[0].edge, messages), output)] if done else ()

    def _parts(
        self, messages: Sequence[StreamMessage], failed: dict[str, TidegateError]
    ) -> dict[str, _RunStep]:
        """The part of each run; runs with a payload that is not a batch are `failed`."""
        parts: dict[str, _RunStep] = defaultdict(_RunStep)
        for message in messages:
            try:
                self._add(message, parts[message.run])
            except NotABatch as error:
                failed[message.run] = error
        for run in failed:
            del parts[run]
            self._states.pop(run, None)
        for run, part in parts.items():
            state = self._states.get(run)
            if state is not None and state.has_enough:
                part.state = state.commit()
        return parts

    def _add(self, message: StreamMessage, part: _RunStep) -> None:
        part.messages.append(message)
        if self._stage.is_stateful:
            self._add_to_state(message, part)
        elif isinstance(message, Event):
            self._add_to_job(message, part)
        elif not (isinstance(message, Barrier) and self.is_withdrawn(message)):
            part.following.append(message)

    def _add_to_job(self, event: Event[object], part: _RunStep) -> None:
        """Batches for an earlier checkpoint, whose barrier did not follow them, are dropped."""
        batch = _batch(event)
        for earlier in [version for version in part.inputs if 0 < version < event.version]:
            del part.inputs[earlier]
        part.inputs.setdefault(event.version, self._empty())[event.port].append(batch)

    def _add_to_state(self, message: StreamMessage, part: _RunStep) -> None:
        """A watermark is true only behind the rows before it, so the next output takes it along."""
        state = self._states.setdefault(message.run, StageState())
        state.messages += 1
        if isinstance(message, Event):
            state.add(message.port, _batch(message), message.version)
        elif isinstance(message, Watermark):
            state.watermark = message.time
        elif isinstance(message, Barrier) and self.is_withdrawn(message):
            part.state = state.commit()  # the cursor has to move over the barrier
        elif isinstance(message, Barrier) and (message.is_end or message.is_checkpoint):
            self._pass_barrier(message, state, part)
        elif isinstance(message, Barrier):
            part.following.append(message)

    def _pass_barrier(self, barrier: Barrier, state: StageState, part: _RunStep) -> None:
        """An unpublished checkpoint needs no job: new batches become part of the state."""
        if not barrier.is_unpublished:
            version = 0 if barrier.is_end else barrier.id
            inputs = part.inputs[version] = self._empty()
            for port, batch in state.up_to(version):
                inputs[port].append(batch)
            part.following.extend(Watermark(time, barrier.run) for time in state.take_watermark())
        part.following.append(barrier)
        if barrier.is_end:
            del self._states[barrier.run]
        else:
            part.snapshot = state.snapshot(barrier.id)
            if self._compact is not None:
                state.compact(barrier.id, partial(self._compacted, number_of(barrier.run)))

    def _compacted(self, run: int, port: int, batches: Sequence[Batch]) -> Future[ShardOutputs]:
        assert self._compact is not None
        return self._compact(port, JobInput(run, self._shard, (tuple(batches),)))

    # ── jobs ──

    def _submit(self, run: str, part: _RunStep, edge: Edge) -> None:
        """Submit the next job of a part; a run and shard has one job at a time."""
        version = next(iter(part.inputs))
        inputs = tuple(tuple(batches) for batches in part.inputs.pop(version))
        result = self._known_result(run, inputs)
        if result is None:
            result = self._batcher.submit(JobInput(number_of(run), self._shard, inputs))
        self._jobs[run] = _RunningJob(edge, part, version, inputs, result, monotonic())
        result.add_done_callback(lambda _: self._job_done())

    def _known_result(
        self, run: str, inputs: tuple[tuple[Batch, ...], ...]
    ) -> Future[ShardOutputs] | None:
        """The output for the last checkpoint, if it was computed from the same files."""
        cached = self._cached.get(run)
        if cached is None or cached.files != _files(inputs):
            return None
        known: Future[ShardOutputs] = Future()
        known.set_result(cached.outputs)
        return known

    def _collect(self, run: str, job: _RunningJob, output: StepOutput) -> None:
        """Take the result of a job; the part leaves when all its jobs are done."""
        part = job.part
        try:
            outputs = job.result.result()
        except StageFailed as failure:
            output.failed[run] = failure
            self._states.pop(run, None)
            return
        part.produced.extend(self._events(run, outputs.items(), job.version))
        if job.version:
            self._cached[run] = _CachedOutput(job.version, _files(job.inputs), outputs)
        self._adapt_step_size(job.bytes, monotonic() - job.started_at)
        if part.inputs:
            self._submit(run, part, job.edge)
        else:
            self._emit(run, part, output)

    def _emit(self, run: str, part: _RunStep, output: StepOutput) -> None:
        """What was produced for a run, and what follows it."""
        output.messages.extend((*part.produced, *part.following))
        output.snapshots[run] = part.snapshot
        if part.state is not None:
            output.state[run] = part.state
        if any(isinstance(message, Barrier) and message.is_end for message in part.following):
            self._cached.pop(run, None)

    def _events(
        self, run: str, outputs: Iterable[tuple[int | None, Batch]], version: int
    ) -> Iterable[Event[object]]:
        sink = self._stage.sink
        for shard, batch in outputs:
            payload = batch if sink is None else SinkResult(sink, batch)
            yield Event(payload, run, shard, version=version)

    def _empty(self) -> list[list[Batch]]:
        return [[] for _ in self._stage.inputs]

    def on_job_done(self, callback: Callable[[], None]) -> None:
        """Call this whenever a job is done."""
        self._job_done = callback

    # ── how much to read ──

    @property
    def step_bytes(self) -> int:
        """Follows how long the last jobs took."""
        return self._step_bytes

    def _adapt_step_size(self, taken: int, seconds: float) -> None:
        if taken and not self._stage.is_stateful:
            self._step_bytes = next_step_bytes(self._step_bytes, taken, seconds)

    @property
    def prefers_large_steps(self) -> bool:
        """Whether every step is a job: then few large ones are better than many small ones."""
        return not (self._stage.is_stateful or passes_through(self._stage))

    def is_blocked(self, edge: Edge, run: str) -> bool:
        """Whether a job is in progress for this run."""
        return run in self._jobs

    # ── state ──

    def uncommitted(self, edge: Edge, run: str) -> int:
        """Messages whose batches are not part of the state."""
        state = self._states.get(run)
        return state.messages if state else 0

    def restore_state(self, run: str, state: Sequence[RestoredEntry]) -> None:
        """Restore the state that was committed last."""
        self._states.setdefault(run, StageState()).restore(state)

    def restore_watermarks(
        self, run: str, watermarks: Mapping[Edge, int], forwarded: int | None
    ) -> None:
        """Restore a watermark that waits for the next output."""
        if self._stage.is_stateful:
            state = self._states.setdefault(run, StageState())
            state.watermark, state.forwarded = max(watermarks.values()), forwarded

    def withdraw(self, run: str, checkpoints: WithdrawnCheckpoints) -> None:
        """The output for a withdrawn checkpoint is not used again: its files may be swept."""
        super().withdraw(run, checkpoints)
        cached = self._cached.get(run)
        if cached is not None and cached.version in checkpoints:
            del self._cached[run]

    def forget(self, run: str) -> None:
        """Drop the state of a run, cancel its job if that has not started, ignore its output."""
        super().forget(run)
        self._states.pop(run, None)
        self._cached.pop(run, None)
        job = self._jobs.pop(run, None)
        if job is not None:
            job.result.cancel()


def _files(inputs: Iterable[Iterable[Batch]]) -> list[list[tuple[str, ...]]]:
    """By input, the files of all batches, whatever the order in which they arrived."""
    return [sorted(batch.files for batch in batches) for batches in inputs]


def _batch(event: Event[object]) -> Batch:
    if isinstance(event.payload, Batch):
        return event.payload
    raise NotABatch(kind=type(event.payload).__name__)
