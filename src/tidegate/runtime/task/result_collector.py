"""The collecting end: where all sinks of a run meet and are published together.

At a checkpoint it has what every sink gave up to that point. What a sink gave for good is part of
the collector's state from there on; what it gave for this checkpoint is replaced by the next. The
last watermark that has come says up to which event time everything has been seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from tidegate.dataflow import Barrier, Event, Watermark
from tidegate.runtime.task import stage_state
from tidegate.runtime.task.processors import Operator
from tidegate.runtime.task.stage_processor import SinkResult
from tidegate.runtime.task.task_loop import Outcome, Result, Snapshot

if TYPE_CHECKING:
    from tidegate.dataflow import Edge, StreamMessage
    from tidegate.runtime.task.task_loop import Step
    from tidegate.store import RestoredEntry


@dataclass(slots=True)
class _Arrived:
    """The results of a run so far."""

    state: list[SinkResult] = field(default_factory=list)
    """As of the last checkpoint."""
    added: list[SinkResult] = field(default_factory=list)
    passing: dict[int, list[SinkResult]] = field(default_factory=dict)
    """By checkpoint what is for that one only."""
    messages: int = 0
    """How many came since the last checkpoint."""
    watermark: int | None = None

    def add(self, event: Event[object]) -> None:
        its = self.passing.setdefault(event.version, []) if event.version else self.added
        its.append(_result(event.payload))

    def snapshot(self, number: int) -> Snapshot:
        outputs = tuple(self.passing.get(number, ()))
        return Snapshot(self.settle(), outputs=outputs)

    def settle(self) -> tuple[tuple[int, SinkResult], ...]:
        """Make what was added part of the state; what that was."""
        added = tuple((0, it) for it in self.added)
        self.state += self.added
        self.added.clear()
        self.passing.clear()
        self.messages = 0
        return added

    @property
    def has_enough(self) -> bool:
        """Whether so much has come that it is settled before the next checkpoint."""
        return self.messages >= stage_state.ENOUGH and not self.passing


class ResultCollector(Operator):
    """Keeps what the sinks of a run gave and publishes it with its END.

    An empty result is a result too.
    """

    def __init__(self, name: str, sinks: Iterable[str]) -> None:
        super().__init__(name)
        self._sinks = tuple(sinks)
        self._arrived: dict[str, _Arrived] = {}

    def unsettled(self, edge: Edge, run: str) -> int:
        """What is kept has no effect until the next barrier."""
        arrived = self._arrived.get(run)
        return arrived.messages if arrived else 0

    def restore(self, run: str, state: Sequence[RestoredEntry]) -> None:
        """Have again what was kept at the last checkpoint."""
        arrived = self._arrived.setdefault(run, _Arrived())
        arrived.state += [_result(held.payload) for held in state]

    def recall(self, run: str, watermarks: Mapping[Edge, int], forwarded: int | None) -> None:
        """Know again up to which event time everything has been seen."""
        self._arrived.setdefault(run, _Arrived()).watermark = max(watermarks.values())

    def watermark(self, run: str) -> int | None:
        """Up to which event time everything of an open run has been seen, as far as it is said."""
        arrived = self._arrived.get(run)
        return arrived.watermark if arrived else None

    def on_cancel(self, run: str) -> None:
        """Forget what had arrived."""
        self._arrived.pop(run, None)

    def handle(self, step: Step) -> Outcome:
        """Keep results; at a checkpoint say what there is, at END publish all of the run's."""
        outcome = Outcome()
        for message in step.messages:
            self._take(message, outcome)
        for run in {message.run for message in step.messages} & self._arrived.keys():
            if self._arrived[run].has_enough:
                outcome.settled[run] = self._arrived[run].settle()
        return outcome

    def _take(self, message: StreamMessage, outcome: Outcome) -> None:
        arrived = self._arrived.setdefault(message.run, _Arrived())
        arrived.messages += 1
        if isinstance(message, Event):
            arrived.add(message)
        elif isinstance(message, Watermark):
            arrived.watermark = message.time
        elif isinstance(message, Barrier) and self.is_void(message):
            outcome.settled[message.run] = arrived.settle()
        elif isinstance(message, Barrier):
            self._pass(message, arrived, outcome)

    def _pass(self, barrier: Barrier, arrived: _Arrived, outcome: Outcome) -> None:
        if barrier.is_end:
            del self._arrived[barrier.run]
            results = [*arrived.state, *arrived.added]
            outcome.results.extend(self._published(barrier.run, results))
        elif barrier.is_checkpoint:
            outcome.snapshots[barrier.run] = arrived.snapshot(barrier.id)
        outcome.data.append(barrier)

    def _published(self, run: str, results: Sequence[SinkResult]) -> Iterable[Result]:
        for sink in self._sinks:
            batches = tuple(result.batch for result in results if result.sink == sink)
            yield Result(run, sink, sum(batch.rows for batch in batches), batches)


def _result(payload: object) -> SinkResult:
    """On a durable channel a result is JSON."""
    if isinstance(payload, Mapping):
        return msgspec.convert(payload, SinkResult)
    assert isinstance(payload, SinkResult), "sinks give results"
    return payload
