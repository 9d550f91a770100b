"""The result collector: the last task of a pipeline, where the results of all sinks arrive.

At END it publishes what every sink produced. At a checkpoint it has what every sink produced up to
that point: permanent results become part of its state; results made for the checkpoint are replaced
by those of the next. The last watermark tells up to which event time all data has been seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidegate.dataflow import Barrier, Event, SinkResult, Watermark
from tidegate.runtime.task import stage_state
from tidegate.runtime.task.processor import Processor, Snapshot, StepInput, StepOutput
from tidegate.store import SinkPublication, number_of

if TYPE_CHECKING:
    from tidegate.dataflow import Edge, StreamMessage
    from tidegate.store import RestoredEntry


@dataclass(slots=True)
class _CollectorState:
    """The results of one run."""

    state: list[SinkResult] = field(default_factory=list)
    """As of the last commit of the state."""
    added: list[SinkResult] = field(default_factory=list)
    versioned: dict[int, list[SinkResult]] = field(default_factory=dict)
    """By checkpoint, the results made for that one only."""
    messages: int = 0
    """How many arrived since the state was last committed."""
    watermark: int | None = None

    def add(self, event: Event[object]) -> None:
        added = self.versioned.setdefault(event.version, []) if event.version else self.added
        added.append(_result(event.payload))

    def snapshot(self, number: int) -> Snapshot:
        outputs = tuple(self.versioned.get(number, ()))
        return Snapshot(self.commit(), outputs=outputs)

    def commit(self) -> tuple[tuple[int, SinkResult], ...]:
        """Add the new results to the state."""
        added = tuple((0, result) for result in self.added)
        self.state += self.added
        self.added.clear()
        self.versioned.clear()
        self.messages = 0
        return added

    @property
    def has_enough(self) -> bool:
        """Whether the state is committed before the next checkpoint."""
        return self.messages >= stage_state.ENOUGH and not self.versioned


class ResultCollector(Processor):
    """Collects the results of the sinks of a run and publishes them with its END.

    An empty result is published too.
    """

    def __init__(self, name: str, sinks: Iterable[str]) -> None:
        super().__init__(name)
        self._sinks = tuple(sinks)
        self._runs: dict[str, _CollectorState] = {}

    def uncommitted(self, edge: Edge, run: str) -> int:
        """Results that are not part of the state."""
        collected = self._runs.get(run)
        return collected.messages if collected else 0

    def restore_state(self, run: str, state: Sequence[RestoredEntry]) -> None:
        """Restore the results that were committed last."""
        collected = self._runs.setdefault(run, _CollectorState())
        collected.state += [_result(entry.payload) for entry in state]

    def restore_watermarks(
        self, run: str, watermarks: Mapping[Edge, int], forwarded: int | None
    ) -> None:
        """Restore up to which event time all data has been seen."""
        self._runs.setdefault(run, _CollectorState()).watermark = max(watermarks.values())

    def watermark(self, run: str) -> int | None:
        """Up to which event time all data of an open run has been seen, if a watermark arrived."""
        collected = self._runs.get(run)
        return collected.watermark if collected else None

    def forget(self, run: str) -> None:
        """Drop the results of a run that was closed."""
        super().forget(run)
        self._runs.pop(run, None)

    def process(self, step: StepInput) -> StepOutput:
        """Collect results; at a checkpoint add a snapshot, at END publish."""
        output = StepOutput()
        for message in step.messages:
            self._take(message, output)
        for run in step.runs & self._runs.keys():
            if self._runs[run].has_enough:
                output.state[run] = self._runs[run].commit()
        return output

    def _take(self, message: StreamMessage, output: StepOutput) -> None:
        collected = self._runs.setdefault(message.run, _CollectorState())
        collected.messages += 1
        if isinstance(message, Event):
            collected.add(message)
        elif isinstance(message, Watermark):
            collected.watermark = message.time
        elif isinstance(message, Barrier) and self.is_withdrawn(message):
            output.state[message.run] = collected.commit()
        elif isinstance(message, Barrier):
            self._pass(message, collected, output)

    def _pass(self, barrier: Barrier, collected: _CollectorState, output: StepOutput) -> None:
        if barrier.is_end:
            del self._runs[barrier.run]
            results = [*collected.state, *collected.added]
            output.published.extend(self._published(barrier.run, results))
        elif barrier.is_checkpoint:
            output.snapshots[barrier.run] = collected.snapshot(barrier.id)
        output.messages.append(barrier)

    def _published(self, run: str, results: Sequence[SinkResult]) -> Iterable[SinkPublication]:
        for sink in self._sinks:
            batches = tuple(result.batch for result in results if result.sink == sink)
            rows = sum(batch.rows for batch in batches)
            yield SinkPublication(number_of(run), sink, batches, rows)


def _result(payload: object) -> SinkResult:
    assert isinstance(payload, SinkResult), "sinks send results"
    return payload
