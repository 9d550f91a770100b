"""Condensing: many batches that a stage keeps become one that stands for all of them.

Partial aggregates are merged and stay partial, of what is ranked only that is kept which can still
be among the first, and everything else is copied together. Where digits would depend on the order
of merging, batches are copied together too: a run that was cut ends with the bytes of one that was
not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.plan.physical import CompactAggregate, MergeAggregate, PartialTop, Top, Where
from tidegate.spark.jobs.aggregates import inexact_calls

if TYPE_CHECKING:
    from tidegate.plan.physical import Step
    from tidegate.spark.analyze.prepare import PreparedStage

_AS_THEY_ARE = Where("true", ())


def compacting(prepared: PreparedStage, port: int) -> PreparedStage:
    """What makes one batch of many that came by this input: same columns, same types."""
    schema = prepared.inputs[port]
    step = _compacting(prepared) if port == 0 else _AS_THEY_ARE
    stage = replace(prepared.stage, steps=(step,))
    return replace(prepared, stage=stage, inputs=(schema,), output=schema, types=({},), route=None)


def _compacting(prepared: PreparedStage) -> Step:
    match prepared.stage.steps[0]:
        case MergeAggregate(by=by, columns=columns) if not any(
            inexact_calls(columns, prepared.types[0])
        ):
            return CompactAggregate(by, columns)
        case Top(n=n, by=order, per=per):
            return PartialTop(n, order, per)
        case _:
            return _AS_THEY_ARE
