"""The collecting end: where all sinks of a run meet and are published together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from tidegate.run.processors import Operator
from tidegate.run.stages import SinkResult
from tidegate.run.step import Outcome, Result
from tidegate.signals import Barrier, Event

if TYPE_CHECKING:
    from tidegate.run.step import Step
    from tidegate.signals import Edge, StreamMessage


@dataclass(slots=True)
class _Arrived:
    """The results of a run so far, from how many messages."""

    results: list[SinkResult] = field(default_factory=list)
    messages: int = 0


class ResultCollector(Operator):
    """Keeps what the sinks of a run gave and publishes it with its END.

    An empty result is a result too.
    """

    def __init__(self, name: str, sinks: Iterable[str]) -> None:
        super().__init__(name)
        self._sinks = tuple(sinks)
        self._arrived: dict[str, _Arrived] = {}

    def unsettled(self, edge: Edge, run: str) -> int:
        """What is kept has no effect until END."""
        arrived = self._arrived.get(run)
        return arrived.messages if arrived else 0

    def on_cancel(self, run: str) -> None:
        """Forget what had arrived."""
        self._arrived.pop(run, None)

    def handle(self, step: Step) -> Outcome:
        """Keep results; at END publish all of the run's."""
        outcome = Outcome()
        for message in step.messages:
            self._take(message, outcome)
        return outcome

    def _take(self, message: StreamMessage, outcome: Outcome) -> None:
        arrived = self._arrived.setdefault(message.run, _Arrived())
        arrived.messages += 1
        if isinstance(message, Event):
            arrived.results.append(_result(message.payload))
        elif isinstance(message, Barrier) and message.is_end:
            del self._arrived[message.run]
            outcome.results.extend(self._published(message.run, arrived.results))
            outcome.data.append(message)

    def _published(self, run: str, results: Sequence[SinkResult]) -> Iterable[Result]:
        for sink in self._sinks:
            batches = tuple(result.batch for result in results if result.sink == sink)
            yield Result(run, sink, sum(batch.rows for batch in batches), batches)


def _result(payload: object) -> SinkResult:
    """On a durable lane a result is JSON."""
    if isinstance(payload, Mapping):
        return msgspec.convert(payload, SinkResult)
    assert isinstance(payload, SinkResult), "sinks give results"
    return payload
