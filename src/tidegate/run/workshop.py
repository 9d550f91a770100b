"""The processors of a plan that runs on Spark, and the desks at which they work."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidegate.run.collect import ResultCollector
from tidegate.run.desk import Desk
from tidegate.run.stages import StageOperator
from tidegate.spark import run_shares

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.plan import PhysicalResultCollect, PhysicalStage
    from tidegate.run.desk import Work
    from tidegate.spark import Checked, Session


class SparkWorkshop:
    """Makes the processors of a checked plan; see `assemble.Workshop`.

    Batches go below `root`, under the name of this `writer`. All tasks of a stage share its desk.
    """

    def __init__(
        self,
        checked: Checked,
        session: Session,
        root: str,
        writer: str,
    ) -> None:
        self._prepared = checked.stages
        self._desks = {
            id: Desk(id, partial(run_shares, session, prepared, root=root, writer=writer))
            for id, prepared in checked.stages.items()
        }

    @property
    def work(self) -> Mapping[str, Work]:
        """What every stage has done here so far."""
        return {stage: desk.work for stage, desk in self._desks.items()}

    def close(self) -> None:
        """Take no more work."""
        for desk in self._desks.values():
            desk.close()

    def stage(self, name: str, stage: PhysicalStage, shard: int) -> StageOperator:
        """A stage hands its work to its desk."""
        prepared, desk = self._prepared[stage.id], self._desks[stage.id]
        return StageOperator(name, shard, prepared, desk)

    def collector(self, name: str, collect: PhysicalResultCollect) -> ResultCollector:
        """Where all sinks meet."""
        return ResultCollector(name, collect.sinks)
