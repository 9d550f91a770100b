"""Running a stage: batches in, one Spark job, batches out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.errors import StageFailed
from tidegate.plan.physical import MergeAggregate, PartialAggregate, Write
from tidegate.spark.causes import SPARK_ERRORS, cause_of
from tidegate.spark.chunks import read_chunks
from tidegate.spark.culprits import find_bad_value, may_be_a_value
from tidegate.spark.exchange import read, write
from tidegate.spark.files import size
from tidegate.spark.steps import apply_steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from tidegate.errors import RunError
    from tidegate.plan.physical import Step
    from tidegate.spark.causes import Cause
    from tidegate.spark.exchange import Batch
    from tidegate.spark.prepare import PreparedStage
    from tidegate.spark.sessions import Session

ONE_TASK_ROWS = 200_000
ONE_TASK_BYTES = 8 << 20
"""Up to this much, one task is quicker than a shuffle between several."""


def run_stage(
    session: Session, prepared: PreparedStage, inputs: Sequence[Sequence[Batch]], folder: str
) -> dict[int | None, Batch]:
    """Apply the stage's steps to batches, one list per input edge, as one Spark job.

    The result is one batch per shard of the reader when the rows are exchanged, and under None
    otherwise; no batch where there are no rows. Raises `StageFailed` with Spark's own cause; for
    a chunk `MissingColumns` if it lacks some, `BadValue` if one is not of its declared type.
    """
    if _gives_nothing(prepared.stage.steps, inputs):
        return {}
    try:
        rows = [_read(session, prepared, at, batches) for at, batches in enumerate(inputs)]
        made = apply_steps(prepared.stage.steps, rows, prepared.types)
        return write(made, folder, prepared.route)
    except SPARK_ERRORS as error:
        raise _told(session, prepared, inputs, cause_of(error)) from error


def passes_through(prepared: PreparedStage) -> bool:
    """Whether a batch goes out as it came in, so that there is nothing to run."""
    return all(isinstance(step, Write) for step in prepared.stage.steps)


def _gives_nothing(steps: Sequence[Step], inputs: Sequence[Sequence[Batch]]) -> bool:
    """No rows give no rows, except that an aggregate without groups is one row of nothing."""
    if any(batch.files for batches in inputs for batch in batches):
        return False
    aggregates = (step for step in steps if isinstance(step, MergeAggregate | PartialAggregate))
    return all(step.by for step in aggregates)


def _read(
    session: Session, prepared: PreparedStage, at: int, batches: Sequence[Batch]
) -> DataFrame:
    schema, source = prepared.inputs[at], prepared.source
    if source is None:
        rows = read(session, batches, schema)
        return rows.coalesce(1) if sum(it.rows for it in batches) <= ONE_TASK_ROWS else rows
    files = _files(batches)
    rows = read_chunks(session, source, schema, files)
    return rows.coalesce(1) if sum(map(size, files)) <= ONE_TASK_BYTES else rows


def _files(batches: Sequence[Batch]) -> list[str]:
    return [file for batch in batches for file in batch.files]


def _told(
    session: Session, prepared: PreparedStage, inputs: Sequence[Sequence[Batch]], cause: Cause
) -> RunError:
    """The value in a client's file if one is to blame, else what Spark said."""
    source = prepared.source
    culprit = None
    if source is not None and may_be_a_value(cause):
        culprit = find_bad_value(session, source, prepared.inputs[0], _files(inputs[0]))
    return culprit or StageFailed(prepared.stage.id, *cause)
