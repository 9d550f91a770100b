"""Preparing a physical plan: every stage with the types it will meet, before any data is there.

Each stage is analysed over empty inputs, upstream first. A stage that then receives nothing
still has the right columns, and the step that finishes an aggregate knows the types which
Spark's own aggregate would have had on rows that are no longer there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.plan.physical import (
    STATEFUL,
    Move,
    PartialAggregate,
    PhysicalStage,
    Scan,
    Write,
    inputs_by_step,
)
from tidegate.spark.analyze.schemas import empty, empty_source
from tidegate.spark.jobs.aggregates import CallTypes, call_types
from tidegate.spark.jobs.apply_operator import apply_step
from tidegate.spark.jobs.exchange import Route

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from tidegate.plan.physical import Edge, PhysicalPlan
    from tidegate.spark.session.sessions import Session


@dataclass(frozen=True, slots=True)
class PreparedStage:
    """A stage that can run: its steps, the schemas of its inputs and output, where rows go.

    The first input of a scan is what clients deliver, with the columns that it reads. `types` are,
    for each step, those of the aggregate that it works on.
    """

    stage: PhysicalStage
    inputs: tuple[StructType, ...]
    output: StructType
    types: tuple[CallTypes, ...]
    route: Route | None

    @property
    def source(self) -> str | None:
        """The source it scans."""
        first = self.stage.steps[0]
        return first.source if isinstance(first, Scan) else None

    @property
    def sink(self) -> str | None:
        """The sink whose result it makes."""
        last = self.stage.steps[-1]
        return last.sink if isinstance(last, Write) else None

    @property
    def is_stateful(self) -> bool:
        """Whether it answers only when all of its input is there."""
        return any(isinstance(step, STATEFUL) for step in self.stage.steps)


def prepare(plan: PhysicalPlan, session: Session) -> dict[str, PreparedStage]:
    """Every stage of the plan by its id."""
    prepared: dict[str, PreparedStage] = {}
    for stage in plan.stages:
        upstreams = [prepared[edge.upstream] for edge in inputs_of(plan, stage)]
        prepared[stage.id] = _prepared(stage, upstreams, route_of(plan, stage), session)
    return prepared


def inputs_of(plan: PhysicalPlan, stage: PhysicalStage) -> tuple[Edge, ...]:
    """The edges by which rows come from other stages, looking through the barrier before it."""
    return plan.arriving(stage)


def route_of(plan: PhysicalPlan, stage: PhysicalStage) -> Route | None:
    """How the rows of a stage are spread over the shards of its reader, if they are."""
    readers = [plan.by_id[reader] for reader in plan.readers[stage.id]]
    edges = {edge for reader in readers for edge in reader.inputs if edge.upstream == stage.id}
    exchanged = [edge for edge in edges if edge.move is Move.EXCHANGE]
    if not exchanged:
        return None
    assert len(readers) == 1, f"{stage.id} is exchanged and has {len(readers)} readers"
    return Route(exchanged[0].keys, readers[0].shards)


def _prepared(
    stage: PhysicalStage,
    upstreams: Sequence[PreparedStage],
    route: Route | None,
    session: Session,
) -> PreparedStage:
    inputs = _empty_inputs(stage, upstreams, session)
    # An aggregate is finished from what its first input began.
    known: CallTypes = upstreams[0].types[-1] if upstreams else {}
    types: list[CallTypes] = []
    rows: tuple[DataFrame, ...] = ()
    for step, more in zip(stage.steps, inputs_by_step(stage.steps, inputs), strict=True):
        rows = (*rows, *more)
        if isinstance(step, PartialAggregate):
            known = call_types(rows[0], step.columns)
        types.append(known)
        rows = (apply_step(step, rows, known),)
    schemas = tuple(it.schema for it in inputs)
    return PreparedStage(stage, schemas, rows[0].schema, tuple(types), route)


def _empty_inputs(
    stage: PhysicalStage, upstreams: Sequence[PreparedStage], session: Session
) -> list[DataFrame]:
    first = stage.steps[0]
    delivered = [empty_source(session, first.columns)] if isinstance(first, Scan) else []
    return [*delivered, *(empty(session, upstream.output) for upstream in upstreams)]
