"""Asking Spark's analyser about a declaration, operator by operator, before any data is touched.

Every operator is applied to empty inputs of the right types. The first one that Spark refuses
becomes an error that points at the user's line, like any other mistake in a declaration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql.types import NullType

from tidegate.errors import DeclarationError, DuplicateColumn, RefusedBySpark
from tidegate.pipeline.names import first_repeated
from tidegate.pipeline.nodes import Aggregate, Join, Sink, Source
from tidegate.plan.logical import logical_plan
from tidegate.plan.planner import physical_plan
from tidegate.spark.analyze.checks import check_aggregate, check_join
from tidegate.spark.analyze.error_wording import guilty_part, kind_of
from tidegate.spark.analyze.logical_operators import apply_operator
from tidegate.spark.analyze.prepare import prepare
from tidegate.spark.analyze.schemas import empty, empty_source, listed
from tidegate.spark.jobs.spark_errors import SPARK_ERRORS, cause_of
from tidegate.spark.session.sessions import borrowed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from tidegate.pipeline import Pipeline
    from tidegate.pipeline.nodes import Node
    from tidegate.plan.inexact import Floating
    from tidegate.plan.physical import PhysicalPlan
    from tidegate.spark.analyze.prepare import PreparedStage
    from tidegate.spark.session.sessions import Session

Schema: TypeAlias = "tuple[tuple[str, str], ...]"
"""Names and types of columns, as text."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A pipeline that Spark accepts, with all that was learnt on the way.

    `sinks` are the columns of every sink, `stages` the prepared stages of `plan` by id, and
    `floating` which sums turned out to add floating point.
    """

    sinks: Mapping[str, Schema]
    plan: PhysicalPlan
    stages: Mapping[str, PreparedStage]
    floating: Floating


def analyze(pipeline: Pipeline, session: Session | None = None) -> Mapping[str, Schema]:
    """The columns of every sink; as `check`, for who only wants to know."""
    return check(pipeline, session).sinks


def check(
    pipeline: Pipeline, session: Session | None = None, *, shards: int | None = None
) -> Checked:
    """Have Spark check a pipeline, and prepare its plan. Without a session it makes its own.

    Raises a `DeclarationError` that points at the first line which cannot work.
    """
    with borrowed(session) as own:
        sinks, floating = analyze_operators(pipeline, own)
        plan = physical_plan(pipeline, shards=shards, floating=floating)
        return Checked(sinks, plan, _prepared(pipeline, plan, own), floating)


def _prepared(
    pipeline: Pipeline, plan: PhysicalPlan, session: Session
) -> Mapping[str, PreparedStage]:
    """What was fine operator by operator must be fine as the stages that will run."""
    try:
        return prepare(plan, session)
    except SPARK_ERRORS as error:
        instead = "Its operators are fine one by one: please report this as a mistake of Tidegate."
        cause = cause_of(error)
        raise RefusedBySpark(pipeline.at, "plan", pipeline.name, *cause, instead) from error


def analyze_operators(
    pipeline: Pipeline, session: Session
) -> tuple[dict[str, Schema], dict[str, frozenset[str]]]:
    """Of the declaration as it stands, the columns of every sink, and the floating sums."""
    known: dict[str, StructType] = {}
    sinks: dict[str, Schema] = {}
    floating: dict[str, frozenset[str]] = {}
    for node in logical_plan(pipeline).nodes:
        inputs = [empty(session, known[upstream]) for upstream in node.inputs]
        known[node.id], floating[node.id] = _analyzed(node.operator, inputs, session)
        if isinstance(node.operator, Sink):
            sinks[node.operator.name] = listed(known[node.id])
    return sinks, floating


def _analyzed(
    operator: Node, inputs: Sequence[DataFrame], session: Session
) -> tuple[StructType, frozenset[str]]:
    """The columns an operator makes, and its floating sums; raises when it cannot work."""
    try:
        # Over Connect nothing is analysed until somebody asks for the schema.
        schema = _applied(operator, inputs, session).schema
        return schema, _check(operator, inputs, schema)
    except DeclarationError:
        raise
    except Exception as error:  # a user's function may raise anything
        raise _refused(operator, inputs, error) from error


def _applied(operator: Node, inputs: Sequence[DataFrame], session: Session) -> DataFrame:
    if isinstance(operator, Source):
        return empty_source(session, operator.schema)
    return apply_operator(operator, inputs)


def _check(operator: Node, inputs: Sequence[DataFrame], schema: StructType) -> frozenset[str]:
    """What Spark lets pass here and would fail on later, or not at all; gives floating sums."""
    repeated = first_repeated(schema.names)
    if repeated is not None:
        raise DuplicateColumn(operator.at, kind_of(operator), repeated)
    for field in schema:
        if isinstance(field.dataType, NullType):
            reason = f"column {field.name!r} has no type, and no file can hold it"
            instead = "Give it one: cast(null as string)."
            kind = kind_of(operator)
            raise RefusedBySpark(operator.at, kind, field.name, "VOID", reason, instead)
    match operator:
        case Aggregate():
            return check_aggregate(operator, inputs[0], schema)
        case Join():
            check_join(operator, *inputs)
    return frozenset()


def _refused(operator: Node, inputs: Sequence[DataFrame], error: Exception) -> RefusedBySpark:
    condition, reason = cause_of(error)
    columns = [f"{name} {kind}" for rows in inputs for name, kind in listed(rows.schema)]
    instead = f"The columns here are: {', '.join(columns)}." if columns else "Check its types."
    sql = guilty_part(operator, inputs)
    return RefusedBySpark(operator.at, kind_of(operator), sql, condition, reason, instead)
