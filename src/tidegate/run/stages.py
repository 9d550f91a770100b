"""Stages as processors: what a stage of the plan does with the batches of each run.

A narrow stage answers every step. A stateful stage keeps the batches of a run (their names, not
their rows) by input, and answers when the run's END has come; over durable lanes they stay on
their lane until then. Either way the work is handed to the stage's desk, which makes Spark jobs
of it, and a run whose job fails is named in the outcome while the others go on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from tidegate.errors import NotABatch, StageFailed
from tidegate.run.pace import FIRST, next_share
from tidegate.run.processors import Operator
from tidegate.run.step import Outcome
from tidegate.signals import Barrier, Event, StreamMessage
from tidegate.spark import Batch, Share, passes_through
from tidegate.store import number_of

if TYPE_CHECKING:
    from tidegate.run.desk import Desk, Made
    from tidegate.run.step import Step
    from tidegate.signals import Edge
    from tidegate.spark import PreparedStage


@dataclass(frozen=True, slots=True)
class SinkResult:
    """Rows of a sink; all results of a run together are what the sink publishes."""

    sink: str
    batch: Batch


@dataclass(slots=True)
class _Turn:
    """What one run has in a step: data for a job, and what goes on behind its rows."""

    inputs: list[list[Batch]]
    is_due: bool = False
    others: list[StreamMessage] = field(default_factory=list)
    answer: Future[Made] | None = None


@dataclass(slots=True)
class _Kept:
    """What a stateful stage has of a run: batches by input, from how many messages."""

    inputs: list[list[Batch]]
    messages: int = 0


class StageOperator(Operator):
    """One shard of a stage. Payloads are a `Batch` in, a `Batch` or a `SinkResult` out.

    The port of an event says which input of the stage it belongs to.
    """

    def __init__(self, name: str, shard: int, stage: PreparedStage, desk: Desk) -> None:
        super().__init__(name)
        self._shard = shard
        self._stage = stage
        self._desk = desk
        self._kept: dict[str, _Kept] = {}
        self._share = FIRST

    @property
    def share(self) -> int:
        """Bytes of one run in a step; follows how long the last ones took."""
        return self._share

    def unsettled(self, edge: Edge, run: str) -> int:
        """What is kept has no effect until END."""
        kept = self._kept.get(run)
        return kept.messages if kept else 0

    def on_cancel(self, run: str) -> None:
        """Forget what is kept."""
        self._kept.pop(run, None)

    def handle(self, step: Step) -> Outcome:
        """All runs of the step together, each in its own order.

        Rows may go ahead of a watermark that came between them, never behind it.
        """
        started = monotonic()
        turns = self._turns(step.messages)
        for run, turn in turns.items():
            if turn.is_due and not passes_through(self._stage):
                turn.answer = self._desk.submit(self._order(run, turn))
        outcome = Outcome()
        for run, turn in turns.items():
            self._conclude(run, turn, outcome)
        self._adapt(turns.values(), monotonic() - started)
        return outcome

    def _turns(self, messages: Sequence[StreamMessage]) -> dict[str, _Turn]:
        turns: dict[str, _Turn] = defaultdict(lambda: _Turn(self._nothing()))
        for message in messages:
            turn = turns[message.run]
            if self._stage.is_stateful:
                self._keep(message, turn)
            elif isinstance(message, Event):
                turn.inputs[message.port].append(_batch(message))
                turn.is_due = True
            else:
                turn.others.append(message)
        return turns

    def _keep(self, message: StreamMessage, turn: _Turn) -> None:
        """A watermark promises nothing before the rows have gone, so END takes it along."""
        kept = self._kept.setdefault(message.run, _Kept(self._nothing()))
        kept.messages += 1
        if isinstance(message, Event):
            kept.inputs[message.port].append(_batch(message))
        elif isinstance(message, Barrier) and message.is_end:
            turn.inputs = self._kept.pop(message.run).inputs
            turn.is_due = True
            turn.others.append(message)

    def _order(self, run: str, turn: _Turn) -> Share:
        inputs = tuple(tuple(batches) for batches in turn.inputs)
        return Share(number_of(run), self._shard, inputs)

    def _conclude(self, run: str, turn: _Turn, outcome: Outcome) -> None:
        try:
            outcome.data.extend(self._events(run, self._made(turn)))
            outcome.data.extend(turn.others)
        except StageFailed as failure:
            outcome.failed[run] = failure
            self._kept.pop(run, None)

    def _made(self, turn: _Turn) -> Iterable[tuple[int | None, Batch]]:
        if turn.answer is not None:
            return turn.answer.result().items()
        return [(None, batch) for batches in turn.inputs for batch in batches]

    def _events(
        self, run: str, made: Iterable[tuple[int | None, Batch]]
    ) -> Iterable[Event[object]]:
        sink = self._stage.sink
        for shard, batch in made:
            yield Event(batch if sink is None else SinkResult(sink, batch), run, shard)

    def _adapt(self, turns: Iterable[_Turn], seconds: float) -> None:
        taken = [sum(batch.bytes for its in turn.inputs for batch in its) for turn in turns]
        if any(taken) and not self._stage.is_stateful:
            self._share = next_share(self._share, max(taken), seconds)

    def _nothing(self) -> list[list[Batch]]:
        return [[] for _ in self._stage.inputs]


def _batch(event: Event[object]) -> Batch:
    """The batch of an event; on a durable lane it is JSON."""
    if isinstance(event.payload, Batch):
        return event.payload
    if isinstance(event.payload, Mapping):
        return msgspec.convert(event.payload, Batch)
    raise NotABatch(kind=type(event.payload).__name__)
