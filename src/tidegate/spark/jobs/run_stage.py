"""Runs a stage as one Spark job over the batches of several tasks and runs.

Starting a job costs more than computing a few rows, so small inputs of the tasks of one stage run
together. The output of each task is the same as if it had run by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.errors import StageFailed
from tidegate.plan.physical import (
    FinalDistinct,
    FinalTop,
    MergeAggregate,
    PartialAggregate,
    PartialDistinct,
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
    from tidegate.spark.jobs.exchange import BatchKey
    from tidegate.spark.jobs.job_input import JobInput
    from tidegate.spark.jobs.tags import Tags
    from tidegate.spark.session.sessions import Session

ONE_TASK_ROWS = 200_000
"""Up to so many rows, one Spark task is faster than several."""
ONE_GROUPING_TASK_ROWS = 1_000_000
"""The same where several Spark tasks would have to shuffle rows."""
_GROUPING = (
    PartialAggregate,
    MergeAggregate,
    PartialDistinct,
    FinalDistinct,
    PartialTop,
    FinalTop,
)


def run_stage_job(
    session: Session, prepared: PreparedStage, inputs: Sequence[JobInput], root: str, writer: str
) -> list[dict[int | None, Batch]]:
    """Apply the stage's operators to all inputs, as one Spark job where they can run together.

    For each input, in order, one batch per shard of the reader if the rows are exchanged, and
    under None otherwise; no batch where there are no rows. Files are written below `root`, in
    folders named by `writer`. Raises `StageFailed` with Spark's own cause; the same inputs can then
    be run one by one, to find the one that fails.
    """
    batches: dict[BatchKey, Batch] = {}
    for job in jobs_of(prepared.stage.operators, inputs):
        batches |= _run(session, prepared, job, root, writer)
    outputs: dict[tuple[int, int], dict[int | None, Batch]] = {
        (job_input.run, job_input.shard): {} for job_input in inputs
    }
    assert len(outputs) == len(inputs), "two inputs have the same run and shard"
    for key, batch in batches.items():
        outputs[key.run, key.shard][key.to if prepared.route else None] = batch
    return [outputs[job_input.run, job_input.shard] for job_input in inputs]


def passes_through(prepared: PreparedStage) -> bool:
    """Whether batches are forwarded unchanged, without a job."""
    operators = prepared.stage.operators
    return prepared.route is None and all(
        isinstance(operator, Scan | WriteSink) for operator in operators
    )


def _run(
    session: Session, prepared: PreparedStage, inputs: Sequence[JobInput], root: str, writer: str
) -> dict[BatchKey, Batch]:
    tags = tags_for((it.run for it in inputs), (it.shard for it in inputs))
    try:
        rows = _rows(session, prepared, inputs, root, tags)
        output = apply_operators(prepared.stage.operators, rows, prepared.types, tags.columns)
        return write(output, prepared.output.names, tags.levels(prepared.route), root, writer)
    except SPARK_ERRORS as error:
        raise StageFailed(prepared.stage.id, *cause_of(error)) from error


def _rows(
    session: Session, prepared: PreparedStage, inputs: Sequence[JobInput], root: str, tags: Tags
) -> list[DataFrame]:
    """The rows of all job inputs, one DataFrame per input of the stage."""
    operators = prepared.stage.operators
    in_one_task = sum(job_input.rows for job_input in inputs) <= _one_task_rows(operators)
    joins = sum(isinstance(operator, PhysicalJoin) for operator in operators)
    by_port = []
    for port, schema in enumerate(prepared.inputs):
        batches = [batch for job_input in inputs for batch in job_input.inputs[port]]
        rows = read_tagged(session, root, batches, schema, tags)
        is_right_side = port >= len(prepared.inputs) - joins
        by_port.append(_in_one_task(rows, is_right_side) if in_one_task else rows)
    return by_port


def _one_task_rows(operators: Sequence[PhysicalOperator]) -> int:
    """The limit for one Spark task; lower for joins, whose right side is in memory."""
    groups = any(isinstance(operator, _GROUPING) for operator in operators)
    joins = any(isinstance(operator, PhysicalJoin) for operator in operators)
    return ONE_GROUPING_TASK_ROWS if groups and not joins else ONE_TASK_ROWS


def _in_one_task(rows: DataFrame, is_right_side: bool) -> DataFrame:
    """Coalesced; the hint avoids a broadcast of the right side of a join in a job of its own."""
    return rows.coalesce(1).hint("shuffle_hash") if is_right_side else rows.coalesce(1)
