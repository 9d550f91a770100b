"""Stages as processors: what a stage of the plan does with the batches of each run.

A narrow stage answers every step with one Spark job per run. A stateful stage keeps the batches
of a run (their names, not their rows) by input, and answers when the run's END has come.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import quote

from tidegate.errors import NotABatch
from tidegate.run.processors import Operator
from tidegate.signals import Barrier, Event
from tidegate.spark import Batch, passes_through, run_stage

if TYPE_CHECKING:
    from tidegate.run.step import Outcome, Step
    from tidegate.spark import PreparedStage, Session


@dataclass(frozen=True, slots=True)
class SinkResult:
    """Rows of a sink; all results of a run together are what the sink publishes."""

    sink: str
    batch: Batch


@dataclass(slots=True)
class Work:
    """What a stage has done so far on one shard."""

    jobs: int = 0
    rows: int = 0
    seconds: float = 0.0


class StageOperator(Operator):
    """One shard of a stage. Payloads are a `Batch` in, a `Batch` or a `SinkResult` out.

    The port of an event says which input of the stage it belongs to. A scan's batches are the
    files that clients delivered. Output goes below `folder`, apart for every run and task.
    """

    def __init__(self, name: str, stage: PreparedStage, session: Session, folder: str) -> None:
        super().__init__(name)
        self._stage = stage
        self._session = session
        self._folder = folder.rstrip("/")
        self._kept: dict[str, list[list[Batch]]] = {}
        self._cancelled: set[str] = set()
        self.work = Work()

    def handle(self, step: Step) -> Outcome:
        """All events of a step together, then what came with them.

        Rows may go ahead of a watermark that came between them, never behind it.
        """
        events = [message for message in step.messages if isinstance(message, Event)]
        made = list(self._on_events(events))
        others = tuple(message for message in step.messages if not isinstance(message, Event))
        outcome = super().handle(replace(step, messages=others))
        outcome.data[:0] = made
        return outcome

    def flush(self, barrier: Barrier) -> Iterable[Event[object]]:
        """A stateful stage answers for a run when its END has come."""
        if not barrier.is_end:
            return ()
        was_cancelled = barrier.run in self._cancelled
        self._cancelled.discard(barrier.run)
        if was_cancelled or not self._stage.is_stateful:
            return ()
        kept = self._kept.pop(barrier.run, None) or self._nothing()
        return tuple(self._run(barrier.run, kept))

    def on_cancel(self, run: str) -> None:
        """Forget what is kept; the END that still comes is not answered."""
        self._kept.pop(run, None)
        self._cancelled.add(run)

    def _on_events(self, events: Sequence[Event[object]]) -> Iterator[Event[object]]:
        for run, inputs in self._by_run(events).items():
            if not self._stage.is_stateful:
                yield from self._run(run, inputs)
                continue
            kept = self._kept.setdefault(run, self._nothing())
            for batches, arrived in zip(kept, inputs, strict=True):
                batches.extend(arrived)

    def _by_run(self, events: Sequence[Event[object]]) -> dict[str, list[list[Batch]]]:
        """The batches of each run, one list per input."""
        runs: dict[str, list[list[Batch]]] = defaultdict(self._nothing)
        for event in events:
            if not isinstance(event.payload, Batch):
                raise NotABatch(kind=type(event.payload).__name__)
            runs[event.run][event.port].append(event.payload)
        return runs

    def _run(self, run: str, inputs: Sequence[Sequence[Batch]]) -> Iterator[Event[object]]:
        for shard, batch in self._made(run, inputs):
            sink = self._stage.sink
            yield Event(batch if sink is None else SinkResult(sink, batch), run, shard)

    def _made(
        self, run: str, inputs: Sequence[Sequence[Batch]]
    ) -> Iterable[tuple[int | None, Batch]]:
        if passes_through(self._stage):
            return [(None, batch) for batches in inputs for batch in batches]
        folder = f"{self._folder}/{quote(run, safe='')}/{self.name}"
        started = monotonic()
        made = run_stage(self._session, self._stage, inputs, folder)
        self.work.jobs += 1
        self.work.rows += sum(batch.rows for batch in made.values())
        self.work.seconds += monotonic() - started
        return made.items()

    def _nothing(self) -> list[list[Batch]]:
        return [[] for _ in self._stage.inputs]
