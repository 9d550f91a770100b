"""Executes a physical plan stage by stage, with chunks and batches split at random.

Stands in for channels and barriers: every round of a stage is one joint job over all of its shards
and runs, on whatever their channels have brought by then.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import uuid4

from pyspark.sql import DataFrame

from tidegate.dataflow import Batch
from tidegate.pipeline import Pipeline
from tidegate.plan import Move, PhysicalPlan, PhysicalStage, physical_plan
from tidegate.spark import (
    JobInput,
    PreparedStage,
    Session,
    ingest,
    passes_through,
    prepare,
    run_stage_job,
)
from tidegate.spark.ingest.parquet_files import stored_parquet
from tidegate.spark.jobs.exchange import read

Sources = Mapping[str, Sequence[str]]
ShardOutputs = dict[int | None, Batch]

RUN = 7


@dataclass
class Execution:
    """Some runs of a plan, by number; `execute` gives what each sink of each run holds."""

    session: Session
    pipeline: Pipeline
    plan: PhysicalPlan
    root: str
    chance: random.Random
    chunks: dict[tuple[str, int, int], list[Batch]] = field(default_factory=dict)
    made: dict[tuple[str, int, int], list[ShardOutputs]] = field(default_factory=dict)

    def execute(self, runs: Mapping[int, Sources]) -> dict[int, dict[str, DataFrame]]:
        prepared = prepare(self.plan, self.session)
        for run, sources in runs.items():
            self._deal(run, sources)
        for stage in prepared.values():
            arrived = {
                (run, shard): tuple(map(tuple, self._arrived(stage, run, shard)))
                for run in runs
                for shard in range(stage.stage.shards)
            }
            self._run(stage, [JobInput(*owner, inputs) for owner, inputs in arrived.items()])
        return {run: self._results(run, prepared.values()) for run in runs}

    def _deal(self, run: int, sources: Sources) -> None:
        """The files of each source, each ingested as a chunk of some shard."""
        for name, files in sources.items():
            for number, file in enumerate(files):
                shard = self.chance.randrange(self.plan.shards)
                beginning = f"chunks/run={run}/to={shard}/{name}/{number}-"
                chunk = ingest(self.session, self.pipeline, name, file, self.root, beginning)
                self.chunks.setdefault((name, run, shard), []).append(chunk)

    def _arrived(self, stage: PreparedStage, run: int, shard: int) -> Iterator[list[Batch]]:
        """The batches of each input, in any order."""
        if stage.source:
            yield self._shuffled(self.chunks.get((stage.source, run, shard), []))
        for edge in self.plan.arriving(stage.stage):
            upstream = self.plan.by_id[edge.upstream]
            assert isinstance(upstream, PhysicalStage)
            producers = [shard] if edge.move is Move.FORWARD else range(upstream.shards)
            yield self._shuffled(
                batch
                for producer in producers
                for made in self.made[edge.upstream, run, producer]
                for to, batch in made.items()
                if to in {None, shard}
            )

    def _shuffled(self, batches: Iterable[Batch]) -> list[Batch]:
        several = list(batches)
        self.chance.shuffle(several)
        return several

    def _run(self, stage: PreparedStage, job_inputs: Sequence[JobInput]) -> None:
        rounds = [job_inputs] if stage.is_stateful else self._split(job_inputs)
        for several in rounds:
            for job_input, made in zip(several, self._answers(stage, several), strict=True):
                self.made.setdefault((stage.stage.id, job_input.run, job_input.shard), []).extend(
                    made
                )

    def _answers(
        self, stage: PreparedStage, job_inputs: Sequence[JobInput]
    ) -> list[list[ShardOutputs]]:
        if passes_through(stage):
            return [
                [{None: it} for batches in job_input.inputs for it in batches]
                for job_input in job_inputs
            ]
        return [[made] for made in run_stage_job(self.session, stage, job_inputs, self.root, "w1")]

    def _split(self, job_inputs: Sequence[JobInput]) -> tuple[list[JobInput], list[JobInput]]:
        """Two jobs of a narrow stage: of each input of each task, a first and a second part."""
        first, second = [], []
        for job_input in job_inputs:
            splits = [(it, self.chance.randint(0, len(it))) for it in job_input.inputs]
            first.append(replace(job_input, inputs=tuple(it[:position] for it, position in splits)))
            second.append(
                replace(job_input, inputs=tuple(it[position:] for it, position in splits))
            )
        return first, second

    def _results(self, run: int, stages: Iterable[PreparedStage]) -> dict[str, DataFrame]:
        return {
            stage.sink: read(self.session, self.root, self._made_by(stage, run), stage.output)
            for stage in stages
            if stage.sink
        }

    def _made_by(self, stage: PreparedStage, run: int) -> list[Batch]:
        owners = ((stage.stage.id, run, shard) for shard in range(stage.stage.shards))
        return [it for owner in owners for made in self.made[owner] for it in made.values()]


def save(rows: DataFrame, root: str, folder: str) -> Batch:
    """Rows as a batch of one file below a folder of the root, as an ingested chunk is."""
    inside = f"{folder}/{uuid4().hex}"
    Path(root).mkdir(parents=True, exist_ok=True)
    rows.coalesce(1).write.parquet(f"{root}/{inside}")
    (file,) = stored_parquet(root, inside)
    return Batch((file.path,), file.rows, file.bytes)


def execute_runs(
    session: Session,
    pipeline: Pipeline,
    runs: Mapping[int, Sources],
    root: str,
    shards: int,
    seed: int,
) -> dict[int, dict[str, DataFrame]]:
    """The sinks of every run, computed together on `shards` shards from chunks in random order."""
    plan = physical_plan(pipeline, shards=shards)
    return Execution(session, pipeline, plan, root, random.Random(seed)).execute(runs)


def execute(
    session: Session, pipeline: Pipeline, sources: Sources, root: str, shards: int, seed: int
) -> dict[str, DataFrame]:
    """The sinks of a single run."""
    return execute_runs(session, pipeline, {RUN: sources}, root, shards, seed)[RUN]
