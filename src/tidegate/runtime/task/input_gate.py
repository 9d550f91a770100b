"""Align: the barrier node of the plan is the input gate of the task that reads it.

One aligner per run holds a barrier until every upstream has delivered it. Everything else passes.
Nothing is read behind a barrier that is pending (`is_blocked`): what follows stays on its channel,
and so does the barrier (`uncommitted`), until the step that completes it moves all cursors over it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic

from tidegate.dataflow import Aligner, Arrival, Barrier, Edge, Event, Pending, StreamMessage
from tidegate.runtime.task.processor import (
    Processor,
    Snapshot,
    StepInput,
    StepOutput,
    failure_on,
)
from tidegate.store import WithdrawnCheckpoints


class InputGate(Processor):
    """Aligns the barriers of all runs over the input edges of a task."""

    def __init__(self, name: str, edges: Sequence[Edge]) -> None:
        super().__init__(name)
        self._edges = tuple(edges)
        self._aligners: dict[str, Aligner] = {}
        self._first_copies: dict[str, float] = {}
        """By run, when the first copy of the pending checkpoint barrier arrived."""

    @property
    def pending(self) -> tuple[Pending, ...]:
        """The barriers that wait here, over all runs."""
        waiting = (aligner.pending for aligner in self._aligners.values())
        return tuple(pending for pending in waiting if pending is not None)

    def process(self, step: StepInput) -> StepOutput:
        """Align message by message, so that a failure names the one that caused it."""
        output = StepOutput()
        for message in step.messages:
            try:
                self._align(step.edge, message, output)
            except Exception as cause:
                raise failure_on(self.name, (message,), cause) from cause
        return output

    def _align(self, edge: Edge, message: StreamMessage, output: StepOutput) -> None:
        run, aligner = message.run, self._aligner(message.run)
        if isinstance(message, Barrier) and message.is_checkpoint:
            self._first_copies.setdefault(run, monotonic())
        for arrival in aligner.accept(edge, message):
            self._forward(arrival, output)
        if aligner.pending is None:
            self._first_copies.pop(run, None)  # it was a late copy of a withdrawn barrier

    def _forward(self, arrival: Arrival, output: StepOutput) -> None:
        message = arrival.message
        if isinstance(message, Event):
            message = message.arriving_by(arrival.edge.port)
        elif isinstance(message, Barrier) and message.is_end:
            del self._aligners[message.run]
        elif isinstance(message, Barrier) and message.is_checkpoint:
            waited = monotonic() - self._first_copies.pop(message.run, monotonic())
            output.snapshots[message.run] = Snapshot(waited=waited, last=arrival.edge.upstream)
        output.messages.append(message)

    def _aligner(self, run: str) -> Aligner:
        if run not in self._aligners:
            self._aligners[run] = Aligner(self._edges, run)
        return self._aligners[run]

    def is_blocked(self, edge: Edge, run: str) -> bool:
        """Whether this channel has delivered a barrier that others have not."""
        aligner = self._aligners.get(run)
        return aligner is not None and aligner.awaits(edge)

    def uncommitted(self, edge: Edge, run: str) -> int:
        """The pending barrier, if this channel has delivered it."""
        return int(self.is_blocked(edge, run))

    def restore_watermarks(
        self, run: str, watermarks: Mapping[Edge, int], forwarded: int | None
    ) -> None:
        """Restore the last watermark of each channel, and the last one that was forwarded."""
        self._aligner(run).recall(watermarks, forwarded)

    def withdraw(self, run: str, checkpoints: WithdrawnCheckpoints) -> None:
        """Release channels that wait for copies of these barriers; late copies are ignored."""
        aligner = self._aligner(run)
        released = aligner.abort_up_to(checkpoints.up_to)
        for number in checkpoints.also:
            released += aligner.abort(number)
        if aligner.pending is None:
            self._first_copies.pop(run, None)
        assert not released, "nothing is held behind a barrier that stays on its channel"

    def forget(self, run: str) -> None:
        """Drop the aligner of a run that was closed."""
        self._aligners.pop(run, None)
        self._first_copies.pop(run, None)
