"""A bench whose run continues under another plan, with names that show how they were processed."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, cast

from tests.integration.runtime.names import Bench, ManualJobBatcher, NamesProcessorFactory
from tidegate.dataflow import Batch
from tidegate.runtime.checkpoints.plan_compatibility import record_plan
from tidegate.runtime.checkpoints.restore import graph_of
from tidegate.runtime.jobs.job_batcher import JobBatcher, ShardOutputs
from tidegate.runtime.task_graph import build_task_graph
from tidegate.store.checkpoints import restore as restore_store

if TYPE_CHECKING:
    from tidegate.plan import PhysicalPlan
    from tidegate.plan.physical import PhysicalStage
    from tidegate.runtime.task.stage_processor import StageProcessor
    from tidegate.spark import JobInput


def replan(
    bench: Bench,
    after: PhysicalPlan,
    number: int,
    factory: type[NamesProcessorFactory] = NamesProcessorFactory,
) -> None:
    """The run is restored to a checkpoint under another plan, compatible or not."""
    task_graph, earlier = build_task_graph(after), bench.run
    bench.database.transact(lambda c: record_plan(c, task_graph))
    graph = graph_of(task_graph)
    bench.run = bench.database.transact(lambda c: restore_store.restore(c, earlier, number, graph))
    bench.plan = after
    del bench.task_graph
    rebuild(bench, factory)


def rebuild(bench: Bench, factory: type[NamesProcessorFactory]) -> None:
    """Restart all tasks with processors of this factory."""
    bench.factory = factory(bench.plan)
    for task in bench.tasks:
        bench.kill(task)


class MarkingJobBatcher(ManualJobBatcher):
    """Adds a mark to every name."""

    mark = ""

    def _outputs(self, job_input: JobInput) -> ShardOutputs:
        inputs = tuple(tuple(self._marked(batch) for batch in its) for its in job_input.inputs)
        return super()._outputs(type(job_input)(job_input.run, job_input.shard, inputs))

    def _marked(self, batch: Batch) -> Batch:
        return Batch(tuple(f"{name}{self.mark}" for name in batch.files), batch.rows)


class MarkingProcessorFactory(NamesProcessorFactory):
    """Every stage marks names with a digest of its operators, except in compaction."""

    def stage(self, name: str, stage: PhysicalStage, shard: int) -> StageProcessor:
        operator = super().stage(name, stage, shard)
        working = cast("MarkingJobBatcher", self.batchers[-2])
        working.mark = f" {stage.id}:{sha256(repr(stage.operators).encode()).hexdigest()[:6]}"
        return operator

    def _batcher(self, shards: int | None) -> JobBatcher:
        batcher = MarkingJobBatcher(shards)
        self.batchers.append(batcher)
        return cast("JobBatcher", batcher)
