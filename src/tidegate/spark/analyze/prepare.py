"""Prepares a physical plan: the schemas and types of every stage, before any data is read.

Each stage is analyzed over empty inputs, upstream first. A stage without input rows then has the
right columns, and the operator that finishes an aggregate knows the types which Spark's own
aggregate has over the original rows, which it does not receive.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidegate.pipeline.nodes import STAR
from tidegate.plan.physical import (
    STATEFUL,
    Move,
    PartialAggregate,
    PhysicalStage,
    Scan,
    WriteSink,
    inputs_by_operator,
)
from tidegate.spark.analyze.schemas import empty, empty_source
from tidegate.spark.jobs.aggregates import CallTypes, call_types
from tidegate.spark.jobs.apply_operator import apply_operator
from tidegate.spark.jobs.exchange import Route

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from tidegate.plan.physical import PhysicalPlan
    from tidegate.spark.session.sessions import Session


@dataclass(frozen=True, slots=True)
class PreparedStage:
    """A stage that can run: its operators, the schemas of its inputs and output, its route.

    The first input of a scan is what clients deliver, with the columns that it reads. `types` has,
    for each operator, the types of its aggregate.
    """

    stage: PhysicalStage
    inputs: tuple[StructType, ...]
    output: StructType
    types: tuple[CallTypes, ...]
    route: Route | None

    @property
    def source(self) -> str | None:
        """The source it scans."""
        first = self.stage.operators[0]
        return first.source if isinstance(first, Scan) else None

    @property
    def sink(self) -> str | None:
        """The sink whose result it writes."""
        last = self.stage.operators[-1]
        return last.sink if isinstance(last, WriteSink) else None

    @property
    def is_stateful(self) -> bool:
        """Whether it produces output only when all of its input is complete."""
        return any(isinstance(operator, STATEFUL) for operator in self.stage.operators)


def prepare(plan: PhysicalPlan, session: Session) -> dict[str, PreparedStage]:
    """Every stage of the plan by its id."""
    prepared: dict[str, PreparedStage] = {}
    for stage in plan.stages:
        upstreams = [prepared[edge.upstream] for edge in plan.arriving(stage)]
        prepared[stage.id] = _prepared(stage, upstreams, route_of(plan, stage), session)
    return prepared


def route_of(plan: PhysicalPlan, stage: PhysicalStage) -> Route | None:
    """How the rows of a stage are distributed over the shards of its reader, if they are."""
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
    # A merge finishes the aggregate whose partial results are its first input.
    known: CallTypes = upstreams[0].types[-1] if upstreams else {}
    types: list[CallTypes] = []
    rows: tuple[DataFrame, ...] = ()
    for operator, more in zip(
        stage.operators, inputs_by_operator(stage.operators, inputs), strict=True
    ):
        rows = (*rows, *more)
        if isinstance(operator, PartialAggregate):
            known = call_types(rows[0], operator.columns)
        types.append(known)
        rows = (apply_operator(operator, rows, known),)
    schemas = tuple(it.schema for it in inputs)
    output = rows[0].schema
    return PreparedStage(stage, schemas, output, tuple(types), _with_columns(route, output))


def _with_columns(route: Route | None, output: StructType) -> Route | None:
    """The route with the names of all columns in place of `*`; the plan does not know them."""
    if route is None or route.keys != (STAR,):
        return route
    return replace(route, keys=tuple(output.names))


def _empty_inputs(
    stage: PhysicalStage, upstreams: Sequence[PreparedStage], session: Session
) -> list[DataFrame]:
    first = stage.operators[0]
    delivered = [empty_source(session, first.columns)] if isinstance(first, Scan) else []
    return [*delivered, *(empty(session, upstream.output) for upstream in upstreams)]
