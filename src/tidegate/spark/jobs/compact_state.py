"""Compaction of state: many batches that a stage stores become one equivalent batch.

Partial aggregates are merged and stay partial; of ranked rows only those remain that can still be
among the first; of distinct rows each remains once; all others are copied into one batch. Where
digits would depend on the order of merging, batches are copied as well: a run with checkpoints ends
with the same bytes as a run without.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.plan.physical import (
    CompactAggregate,
    FinalDistinct,
    FinalTop,
    MergeAggregate,
    PartialDistinct,
    PartialTop,
    Where,
)
from tidegate.spark.jobs.aggregates import inexact_calls

if TYPE_CHECKING:
    from tidegate.plan.physical import PhysicalOperator
    from tidegate.spark.analyze.prepare import PreparedStage

_COPY = Where("true", ())


def compacting(prepared: PreparedStage, port: int) -> PreparedStage:
    """A stage that makes one batch of many that arrived on this input, with the same columns."""
    schema = prepared.inputs[port]
    operator = _compacting(prepared) if port == 0 else _COPY
    stage = replace(prepared.stage, operators=(operator,))
    return replace(prepared, stage=stage, inputs=(schema,), output=schema, types=({},), route=None)


def _compacting(prepared: PreparedStage) -> PhysicalOperator:
    """The operator that compacts the first input; a copy is right for operators of any kind."""
    first = prepared.stage.operators[0]
    if isinstance(first, MergeAggregate) and not any(
        inexact_calls(first.columns, prepared.types[0])
    ):
        return CompactAggregate(first.by, first.columns)
    if isinstance(first, FinalDistinct):
        return PartialDistinct()
    return PartialTop(first.n, first.by, first.per) if isinstance(first, FinalTop) else _COPY
