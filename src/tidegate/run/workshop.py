"""The processors of a plan that runs on Spark in this process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidegate.run.assemble import assemble
from tidegate.run.processors import Operator
from tidegate.run.stages import SinkResult, StageOperator
from tidegate.signals.channel import DEFAULT_CAPACITY
from tidegate.spark import Batch, check, check_chunk

if TYPE_CHECKING:
    from pathlib import Path

    from tidegate.pipeline import Pipeline
    from tidegate.plan import PhysicalResultCollect, PhysicalStage
    from tidegate.run.live import LivePipeline
    from tidegate.run.step import Processor
    from tidegate.signals import Barrier, Event
    from tidegate.spark import Schema, Session


class ResultCollector(Operator):
    """The collecting end: keeps what the sinks of a run gave and publishes it with its END."""

    def __init__(self, name: str, sinks: Iterable[str]) -> None:
        super().__init__(name)
        self._sinks = tuple(sinks)
        self._arrived: dict[str, dict[str, list[Batch]]] = defaultdict(self._nothing)
        self.published: dict[str, dict[str, list[Batch]]] = {}
        """For every complete run the batches of each sink; an empty result is a result too."""

    def on_event(self, event: Event[object]) -> Iterable[Event[object]]:
        """Keep a result until the run is complete."""
        assert isinstance(event.payload, SinkResult), "sinks give results"
        self._arrived[event.run][event.payload.sink].append(event.payload.batch)
        return ()

    def flush(self, barrier: Barrier) -> Iterable[Event[object]]:
        """All sinks of a run are published together."""
        if barrier.is_end:
            self.published[barrier.run] = self._arrived[barrier.run]
            del self._arrived[barrier.run]
        return ()

    def on_cancel(self, run: str) -> None:
        """Forget what had arrived."""
        self._arrived.pop(run, None)

    def _nothing(self) -> dict[str, list[Batch]]:
        return {sink: [] for sink in self._sinks}


class SparkWorkshop:
    """Brings a pipeline to life on Spark in this process; see `assemble.Workshop`.

        workshop = SparkWorkshop(pipeline, session, folder)
        with workshop.start() as live: ...

    Spark checks the whole declaration first, so a wrong column is an error at the user's line
    before any data is touched. Batches go below `folder`.
    """

    def __init__(
        self, pipeline: Pipeline, session: Session, folder: str, shards: int | None = None
    ) -> None:
        checked = check(pipeline, session, shards=shards)
        self.plan = checked.plan
        self.results = ResultCollector(self.plan.root.id, pipeline.sinks)
        self.tasks: dict[str, list[StageOperator]] = defaultdict(list)
        """The processors of every stage, one per shard, once they are made."""
        self._pipeline = pipeline
        self._session = session
        self._folder = folder
        self._prepared = checked.stages

    def start(self, capacity: int = DEFAULT_CAPACITY) -> LivePipeline:
        """Start every processor of the plan."""
        return assemble(self.plan, self).start(capacity)

    def chunk(self, source: str, file: str | Path) -> Batch:
        """A file that a client delivers, checked: it is there, and has the declared columns.

        CSV needs a header line; columns are found by name, in any order. A relative path counts
        from here.
        """
        return check_chunk(self._pipeline, source, str(file))

    def schema_of(self, sink: str) -> Schema:
        """The columns and types of a sink's result."""
        return next(it.output for it in self._prepared.values() if it.sink == sink)

    def stage(self, name: str, stage: PhysicalStage, shard: int) -> Processor:
        """A stage is one Spark job per step."""
        made = StageOperator(name, self._prepared[stage.id], self._session, self._folder)
        self.tasks[stage.id].append(made)
        return made

    def collector(self, name: str, collect: PhysicalResultCollect) -> Processor:
        """Where all sinks meet."""
        return self.results
