"""Running a stage: the batches of several tasks and runs in, one Spark job, batches out.

Starting a job costs more than computing a few rows, so small steps of the tasks of one stage run
together. Each task's share of what comes out is its own, as if it had run by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.errors import StageFailed
from tidegate.plan.physical import (
    FinalTop,
    MergeAggregate,
    PartialAggregate,
    PartialTop,
    PhysicalJoin,
    Scan,
    WriteSink,
)
from tidegate.spark.jobs.apply_operator import apply_operators
from tidegate.spark.jobs.exchange import write
from tidegate.spark.jobs.job_input import jobs_of
from tidegate.spark.jobs.spark_errors import SPARK_ERRORS, cause_of
from tidegate.spark.jobs.tags import read_tagged, tags_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from tidegate.dataflow import Batch
    from tidegate.plan.physical import PhysicalOperator
    from tidegate.spark.analyze.prepare import PreparedStage
    from tidegate.spark.jobs.exchange import Place
    from tidegate.spark.jobs.job_input import JobInput
    from tidegate.spark.jobs.tags import Tags
    from tidegate.spark.session.sessions import Session

ONE_TASK_ROWS = 200_000
"""Up to this much, one task is quicker than several, which have to be started."""
ONE_GROUPING_TASK_ROWS = 1_000_000
"""The same where several tasks would have to shuffle rows between them."""
_GROUPING = (PartialAggregate, MergeAggregate, PartialTop, FinalTop)


def run_stage_job(
    session: Session, prepared: PreparedStage, shares: Sequence[JobInput], root: str, writer: str
) -> list[dict[int | None, Batch]]:
    """Apply the stage's steps to all shares, as one Spark job where they can run together.

    For each share, in order, one batch per shard of the reader when the rows are exchanged, and
    under None otherwise; no batch where there are no rows. Files are written below `root`, in
    folders that carry `writer`. Raises `StageFailed` with Spark's own cause; the same shares may
    then be run one by one, to find the one that fails.
    """
    found: dict[Place, Batch] = {}
    for job in jobs_of(prepared.stage.operators, shares):
        found |= _run(session, prepared, job, root, writer)
    made: dict[tuple[int, int], dict[int | None, Batch]] = {
        (share.run, share.shard): {} for share in shares
    }
    assert len(made) == len(shares), "two shares have the same run and shard"
    for place, batch in found.items():
        made[place.run, place.shard][place.to if prepared.route else None] = batch
    return [made[share.run, share.shard] for share in shares]


def passes_through(prepared: PreparedStage) -> bool:
    """Whether a batch goes out as it came in, so that there is nothing to run."""
    operators = prepared.stage.operators
    return prepared.route is None and all(
        isinstance(operator, Scan | WriteSink) for operator in operators
    )


def _run(
    session: Session, prepared: PreparedStage, shares: Sequence[JobInput], root: str, writer: str
) -> dict[Place, Batch]:
    tags = tags_for((share.run for share in shares), (share.shard for share in shares))
    try:
        rows = _rows(session, prepared, shares, root, tags)
        made = apply_operators(prepared.stage.operators, rows, prepared.types, tags.columns)
        return write(made, prepared.output.names, tags.levels(prepared.route), root, writer)
    except SPARK_ERRORS as error:
        raise StageFailed(prepared.stage.id, *cause_of(error)) from error


def _rows(
    session: Session, prepared: PreparedStage, shares: Sequence[JobInput], root: str, tags: Tags
) -> list[DataFrame]:
    """What the shares bring, one table per input."""
    operators = prepared.stage.operators
    in_one_task = sum(share.rows for share in shares) <= _one_task_rows(operators)
    joins = sum(isinstance(operator, PhysicalJoin) for operator in operators)
    inputs = []
    for at, schema in enumerate(prepared.inputs):
        batches = [batch for share in shares for batch in share.inputs[at]]
        rows = read_tagged(session, root, batches, schema, tags)
        is_right_side = at >= len(prepared.inputs) - joins
        inputs.append(_in_one_task(rows, is_right_side) if in_one_task else rows)
    return inputs


def _one_task_rows(operators: Sequence[PhysicalOperator]) -> int:
    """A join in one task keeps its right side in memory, so it gets no more than it must."""
    groups = any(isinstance(operator, _GROUPING) for operator in operators)
    joins = any(isinstance(operator, PhysicalJoin) for operator in operators)
    return ONE_GROUPING_TASK_ROWS if groups and not joins else ONE_TASK_ROWS


def _in_one_task(rows: DataFrame, is_right_side: bool) -> DataFrame:
    """A join would otherwise send its right side to all tasks first, in a job of its own."""
    return rows.coalesce(1).hint("shuffle_hash") if is_right_side else rows.coalesce(1)
