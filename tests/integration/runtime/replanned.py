"""A bench whose run goes on under another plan, and names that say what was done with them."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, cast

from tests.integration.runtime.names import Bench, Hands, NamesWorkshop
from tidegate.runtime.checkpoints.plan_compatibility import record_plan
from tidegate.runtime.checkpoints.restore import graph_of
from tidegate.runtime.jobs.job_batcher import Desk, Made
from tidegate.runtime.task_graph import assemble
from tidegate.spark import Batch
from tidegate.store.checkpoints import restore as restore_store

if TYPE_CHECKING:
    from tidegate.plan import PhysicalPlan
    from tidegate.plan.physical import PhysicalStage
    from tidegate.runtime.task.stage_processor import StageOperator
    from tidegate.spark import Share


def replan(
    bench: Bench, after: PhysicalPlan, number: int, workshop: type[NamesWorkshop] = NamesWorkshop
) -> None:
    """The run begins again at a cut under another plan, whether it fits or not."""
    assembly, earlier = assemble(after), bench.run
    bench.database.transact(lambda c: record_plan(c, assembly))
    graph = graph_of(assembly)
    bench.run = bench.database.transact(lambda c: restore_store.restore(c, earlier, number, graph))
    bench.plan = after
    del bench.assembly
    rebuild(bench, workshop)


def rebuild(bench: Bench, workshop: type[NamesWorkshop]) -> None:
    """Others work on the run from here on."""
    bench.workshop = workshop(bench.plan)
    for task in bench.tasks:
        bench.kill(task)


class MarkingHands(Hands):
    """Add to every name what was done with it."""

    mark = ""

    def _made(self, share: Share) -> Made:
        inputs = tuple(tuple(self._marked(batch) for batch in its) for its in share.inputs)
        return super()._made(type(share)(share.run, share.shard, inputs))

    def _marked(self, batch: Batch) -> Batch:
        return Batch(tuple(f"{name}{self.mark}" for name in batch.files), batch.rows)


class MarkingWorkshop(NamesWorkshop):
    """Every stage marks names with a digest of its steps, except while it condenses."""

    def stage(self, name: str, stage: PhysicalStage, shard: int) -> StageOperator:
        operator = super().stage(name, stage, shard)
        working = cast("MarkingHands", self.hands[-2])
        working.mark = f" {stage.id}:{sha256(repr(stage.steps).encode()).hexdigest()[:6]}"
        return operator

    def _hire(self, shards: int | None) -> Desk:
        hands = MarkingHands(shards)
        self.hands.append(hands)
        return cast("Desk", hands)
