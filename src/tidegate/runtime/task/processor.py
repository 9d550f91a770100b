"""Processors: what a task does with the messages of one step.

`Processor` is the base class of the three kinds of tasks: the input gate aligns barriers
(`input_gate`), a stage runs Spark jobs (`stage_processor`), the result collector publishes
(`result_collector`). A processor keeps its memory rebuildable: the task loop leaves a channel's
cursor before the messages that are `uncommitted`, and reads them again after a crash.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tidegate.errors import ProcessorFailed, TidegateError, listed
from tidegate.store import WithdrawnCheckpoints, number_of

if TYPE_CHECKING:
    from tidegate.dataflow import Barrier, Edge, Payload, StreamMessage
    from tidegate.store import RestoredEntry, SinkPublication

NOTHING_WITHDRAWN = WithdrawnCheckpoints()


@dataclass(frozen=True, slots=True)
class StepInput:
    """Messages processed together: of one edge and any number of runs, of each up to a barrier."""

    edge: Edge
    messages: tuple[StreamMessage, ...]

    @property
    def runs(self) -> set[str]:
        """The runs that the messages belong to."""
        return {message.run for message in self.messages}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a task adds to a checkpoint when the barrier leaves it; payloads name their files."""

    state: tuple[tuple[int, Payload], ...] = ()
    """What was added to the task's state since the last checkpoint, each with its input."""
    compacted: tuple[tuple[int, int], ...] = ()
    """By input, the checkpoint up to which `state` replaces what was there before."""
    outputs: tuple[Payload, ...] = ()
    """Result collector only: what sinks produced for this checkpoint alone."""
    waited: float = 0.0
    """Seconds from the first copy of the barrier to the last."""
    last: str = ""
    """The upstream that delivered the last copy."""


@dataclass(slots=True)
class StepOutput:
    """What a step leads to; committed in one transaction with the cursors."""

    messages: list[StreamMessage] = field(default_factory=list)
    published: list[SinkPublication] = field(default_factory=list)
    """Results that become visible with this step."""
    failed: dict[str, TidegateError] = field(default_factory=dict)
    """Runs that cannot be completed, each with its cause; the others are not affected."""
    deferred: set[str] = field(default_factory=set)
    """Runs with a job in progress: their part of the step is committed with `finished`."""
    snapshots: dict[str, Snapshot] = field(default_factory=dict)
    """By run, for checkpoint barriers among the messages."""
    state: dict[str, tuple[tuple[int, Payload], ...]] = field(default_factory=dict)
    """By run, what is added to the task's state without a barrier."""

    def without(self, runs: Collection[str]) -> StepOutput:
        """The output of the other runs."""
        ids = {number_of(run) for run in runs}
        return replace(
            self,
            messages=[message for message in self.messages if message.run not in runs],
            published=[result for result in self.published if result.run not in ids],
            failed={run: cause for run, cause in self.failed.items() if run not in runs},
            deferred=self.deferred.difference(runs),
            snapshots={run: each for run, each in self.snapshots.items() if run not in runs},
            state={run: state for run, state in self.state.items() if run not in runs},
        )


class Processor:
    """Processes the steps of one task. The defaults are those of a stateless processor."""

    def __init__(self, name: str) -> None:
        self.name = name
        """The task: `s3`, or `s3/0` for one shard of a stage."""
        self._withdrawn: dict[str, WithdrawnCheckpoints] = {}

    def process(self, step: StepInput) -> StepOutput:
        """What a step leads to. Never waits for a job or for another task."""
        raise NotImplementedError

    def finished(self) -> Sequence[tuple[StepInput, StepOutput]]:
        """Deferred parts of steps whose jobs have finished since the last call."""
        return ()

    def on_job_done(self, callback: Callable[[], None]) -> None:
        """Call this, on any thread, whenever `finished` has something to return."""

    # ── how much to read ──

    @property
    def step_bytes(self) -> int:
        """Bytes of data to read in a step at most; runs share them evenly."""
        return sys.maxsize

    @property
    def prefers_large_steps(self) -> bool:
        """Whether data is left to gather on its channel before it is read; see `batch_sizing`."""
        return False

    def is_blocked(self, edge: Edge, run: str) -> bool:
        """Whether nothing more can be read of this channel: a barrier or a job is pending."""
        return False

    # ── what is committed, and what comes back after a crash ──

    def uncommitted(self, edge: Edge, run: str) -> int:
        """How many of the last messages of this channel are in memory only."""
        return 0

    def restore_state(self, run: str, state: Sequence[RestoredEntry]) -> None:
        """Restore the state that was committed last."""

    def restore_watermarks(
        self, run: str, watermarks: Mapping[Edge, int], forwarded: int | None
    ) -> None:
        """Restore the last watermark of each channel, and the last one that was forwarded."""

    # ── checkpoints that were given up, runs that were closed ──

    def withdraw(self, run: str, checkpoints: WithdrawnCheckpoints) -> None:
        """Barriers of these checkpoints have no effect any more."""
        self._withdrawn[run] = checkpoints

    def is_withdrawn(self, barrier: Barrier) -> bool:
        """Whether this is the barrier of a checkpoint that was withdrawn."""
        withdrawn = self._withdrawn.get(barrier.run, NOTHING_WITHDRAWN)
        return barrier.is_checkpoint and barrier.id in withdrawn

    def forget(self, run: str) -> None:
        """Drop everything of a run: it was closed, or is read again from its cursors."""
        self._withdrawn.pop(run, None)


def failure_on(
    processor: str, messages: Sequence[StreamMessage], cause: BaseException
) -> ProcessorFailed:
    """The failure of a processor on these messages, naming them and their runs."""
    shown = listed([str(message) for message in messages], most=3)
    runs = tuple(dict.fromkeys(message.run for message in messages))
    return ProcessorFailed(processor, shown, f"{type(cause).__name__}: {cause}", runs)
