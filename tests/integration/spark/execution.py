"""Executing a physical plan stage by stage, with chunks and steps cut at random.

Stands in for lanes and barriers: every shard of every stage is a `StageOperator` that is handed
what its lanes would bring, in pieces, and then END.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from tidegate.pipeline import Pipeline
from tidegate.plan import Move, PhysicalPlan, PhysicalStage, physical_plan
from tidegate.run.stages import SinkResult, StageOperator
from tidegate.run.step import Step
from tidegate.signals import BarrierKind, Carrier, Edge, Event, StreamMessage
from tidegate.spark import Batch, PreparedStage, Session, inputs_of, prepare
from tidegate.spark.exchange import read

RUN = "a run"
LANE = Edge(0, "upstream")


@dataclass
class Execution:
    """One run of a plan; `sinks` holds the results once `run` is through."""

    session: Session
    plan: PhysicalPlan
    folder: str
    chance: random.Random
    made: dict[tuple[str, int], list[Event[object]]] = field(default_factory=dict)

    def run(self, sources: Mapping[str, Sequence[str]]) -> dict[str, DataFrame]:
        prepared = prepare(self.plan, self.session)
        for stage in self.plan.stages:
            chunks = self._dealt(prepared[stage.id], sources)
            for shard in range(stage.shards):
                arriving = [*chunks[shard], *self._arriving(stage, shard)]
                self.made[stage.id, shard] = self._answers(prepared[stage.id], shard, arriving)
        return {it.sink: self._result(it) for it in prepared.values() if it.sink}

    def _dealt(
        self, stage: PreparedStage, sources: Mapping[str, Sequence[str]]
    ) -> list[list[Event[object]]]:
        """The files of a source, each as a chunk on some shard."""
        dealt: list[list[Event[object]]] = [[] for _ in range(stage.stage.shards)]
        for file in sources.get(stage.source or "", ()):
            self.chance.choice(dealt).append(Event(Batch((file,), 0), RUN))
        return dealt

    def _arriving(self, stage: PhysicalStage, shard: int) -> Iterator[Event[object]]:
        for number, edge in enumerate(inputs_of(self.plan, stage)):
            upstream = self.plan.by_id[edge.upstream]
            shards = [shard] if edge.move is Move.FORWARD else range(upstream.shards)
            for producer in shards:
                for event in self.made[edge.upstream, producer]:
                    if event.shard in {None, shard}:
                        yield event.arriving_by(number)

    def _answers(
        self, stage: PreparedStage, shard: int, arriving: list[Event[object]]
    ) -> list[Event[object]]:
        name = f"{stage.stage.id}/{shard}"
        operator = StageOperator(name, stage, self.session, self.folder)
        self.chance.shuffle(arriving)
        cut = self.chance.randint(0, len(arriving))
        end = BarrierKind.END_OF_RUN.with_id(1, RUN)
        steps: list[tuple[StreamMessage, ...]] = [
            (*arriving[:cut],), (*arriving[cut:],), (end,),
        ]  # fmt: skip
        outcomes = [operator.handle(Step(Carrier.DATA, LANE, step)) for step in steps if step]
        assert outcomes[-1].data[-1] == end, "END goes last"
        return [out for it in outcomes for out in it.data if isinstance(out, Event)]

    def _result(self, stage: PreparedStage) -> DataFrame:
        results = [event.payload for event in self.made[stage.stage.id, 0]]
        batches = [it.batch for it in results if isinstance(it, SinkResult)]
        return read(self.session, batches, stage.output)


def execute(
    session: Session,
    pipeline: Pipeline,
    sources: Mapping[str, Sequence[str]],
    folder: str,
    shards: int,
    seed: int,
) -> dict[str, DataFrame]:
    """The sinks of a pipeline, computed on `shards` shards from chunks in random order."""
    plan = physical_plan(pipeline, shards=shards)
    return Execution(session, plan, folder, random.Random(seed)).run(sources)
