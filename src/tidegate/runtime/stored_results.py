"""Results of runs that are read from the deployment alone: without a service, mostly without Spark.

The plan that was recorded with the run names its sinks; the footers of the files have the columns.
Spark is needed for the columns of a sink without rows, which has no file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.errors import ResultsNotReady, UnknownSink
from tidegate.runtime.checkpoints.client import Collector, collector_of, read_checkpoint
from tidegate.runtime.ingestion.run_state import raise_if_unsuccessful
from tidegate.spark import check
from tidegate.spark.results.export import export_result, stored_schema
from tidegate.store import RunState, plan_of, results_of
from tidegate.store.runs.plans import recorded

if TYPE_CHECKING:
    from tidegate.dataflow import Batch
    from tidegate.pipeline import Pipeline
    from tidegate.plan import PhysicalPlan
    from tidegate.spark import Checked, Schema
    from tidegate.store import Connection, Database, RunInfo


@dataclass
class RunResults:
    """The results of all sinks of a run: the final ones, or those of a checkpoint."""

    root: str
    checkpoint: int | None
    batches: Mapping[str, list[Batch]]
    declaration: Callable[[], Pipeline]
    """Finds the pipeline's declaration; called only for a sink without rows."""

    def rows(self, sink: str) -> int:
        """The number of rows of a sink."""
        return sum(batch.rows for batch in self._of(sink))

    def export(self, sink: str, kind: str, path: Path) -> None:
        """Write the result of a sink to a file; raises `UnknownSink`."""
        batches = self._of(sink)
        schema = stored_schema(self.root, batches) or self._declared_schema(sink)
        export_result(self.root, batches, schema, kind, path)

    def _of(self, sink: str) -> list[Batch]:
        if sink not in self.batches:
            raise UnknownSink(sink, ", ".join(self.batches))
        return self.batches[sink]

    def _declared_schema(self, sink: str) -> Schema:
        stages = self._checked.stages.values()
        return next(stage.output for stage in stages if stage.sink == sink)

    @cached_property
    def _checked(self) -> Checked:
        return check(self.declaration())


def read_results(
    database: Database,
    root: str,
    run: RunInfo,
    number: int | None,
    declaration: Callable[[], Pipeline],
) -> RunResults:
    """The final results of a run, or those of one of its published checkpoints.

    Raises `UnknownCheckpoint`; without a number `ResultsNotReady`, `RunFailed`, `RunCancelled`.
    """
    if number is None:
        return RunResults(root, None, database.transact(lambda c: _final(c, run)), declaration)

    def read(connection: Connection) -> Mapping[str, list[Batch]]:
        collector = _collector(connection, run) or collector_of(plan())
        return read_checkpoint(connection, run, collector, number).results

    def plan() -> PhysicalPlan:
        return check(declaration()).plan

    return RunResults(root, number, database.transact(read), declaration)


def _final(connection: Connection, run: RunInfo) -> Mapping[str, list[Batch]]:
    raise_if_unsuccessful(run)
    if run.state is not RunState.ENDED:
        raise ResultsNotReady(run.name)
    return {sink: result.batches for sink, result in results_of(connection, run).items()}


def _collector(connection: Connection, run: RunInfo) -> Collector | None:
    """By the recorded plan; None for a plan that was too large to be recorded."""
    nodes = recorded(connection, plan_of(connection, run))
    if nodes is None:
        return None
    collector = json.loads(nodes)[-1]  # the collector is the last node of every plan
    return Collector(collector["id"], tuple(collector["sinks"]))
