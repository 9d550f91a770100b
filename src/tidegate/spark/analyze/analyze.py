"""Checks a declaration with Spark's analyzer, operator by operator, before any data is read.

Every operator is applied to empty inputs of the right types. The first one that Spark rejects
becomes an error with the user's line, like any other mistake in a declaration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, assert_never

from pyspark.sql.types import NullType

from tidegate.errors import DeclarationError, DuplicateColumn, RefusedBySpark
from tidegate.pipeline.names import first_repeated
from tidegate.pipeline.nodes import (
    Aggregate,
    Distinct,
    Filter,
    Join,
    Select,
    Sink,
    Source,
    Top,
    Transform,
    Union,
)
from tidegate.plan.logical import logical_plan
from tidegate.plan.planner import physical_plan
from tidegate.spark.analyze.checks import check_aggregate, check_join, check_keys
from tidegate.spark.analyze.error_wording import kind_of, rejected_part
from tidegate.spark.analyze.logical_operators import apply_logical
from tidegate.spark.analyze.prepare import prepare
from tidegate.spark.analyze.schemas import empty, empty_source, listed
from tidegate.spark.jobs.spark_errors import SPARK_ERRORS, cause_of
from tidegate.spark.session.sessions import borrowed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from tidegate.pipeline import Pipeline
    from tidegate.pipeline.nodes import Operator
    from tidegate.plan.inexact import Floating
    from tidegate.plan.physical import PhysicalPlan
    from tidegate.spark.analyze.prepare import PreparedStage
    from tidegate.spark.session.sessions import Session

Columns: TypeAlias = "tuple[tuple[str, str], ...]"
"""Names and types of columns, as text."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A pipeline that Spark accepts.

    `sinks` are the columns of every sink, `stages` the prepared stages of `plan` by id, and
    `floating` the sums that add floating point.
    """

    sinks: Mapping[str, Columns]
    plan: PhysicalPlan
    stages: Mapping[str, PreparedStage]
    floating: Floating


def analyze(pipeline: Pipeline, session: Session | None = None) -> Mapping[str, Columns]:
    """The columns of every sink; raises as `check` does."""
    return check(pipeline, session).sinks


def check(
    pipeline: Pipeline, session: Session | None = None, *, shards: int | None = None
) -> Checked:
    """Check a pipeline with Spark, and prepare its plan. Without a session it opens its own.

    Raises a `DeclarationError` with the first line that cannot work.
    """
    with borrowed(session) as own:
        sinks, floating = analyze_operators(pipeline, own)
        plan = physical_plan(pipeline, shards=shards, floating=floating)
        return Checked(sinks, plan, _prepared(pipeline, plan, own), floating)


def _prepared(
    pipeline: Pipeline, plan: PhysicalPlan, session: Session
) -> Mapping[str, PreparedStage]:
    """The stages of a plan whose operators Spark has accepted one by one."""
    try:
        return prepare(plan, session)
    except SPARK_ERRORS as error:
        instead = "Spark accepts its operators one by one: please report this as a bug of Tidegate."
        cause = cause_of(error)
        raise RefusedBySpark(pipeline.at, "plan", pipeline.name, *cause, instead) from error


def analyze_operators(
    pipeline: Pipeline, session: Session
) -> tuple[dict[str, Columns], dict[str, frozenset[str]]]:
    """The columns of every sink of the declaration, and the floating-point sums."""
    known: dict[str, StructType] = {}
    sinks: dict[str, Columns] = {}
    floating: dict[str, frozenset[str]] = {}
    for node in logical_plan(pipeline).nodes:
        inputs = [empty(session, known[upstream]) for upstream in node.inputs]
        known[node.id], floating[node.id] = _analyzed(node.operator, inputs, session)
        if isinstance(node.operator, Sink):
            sinks[node.operator.name] = listed(known[node.id])
    return sinks, floating


def _analyzed(
    operator: Operator, inputs: Sequence[DataFrame], session: Session
) -> tuple[StructType, frozenset[str]]:
    """The output columns of an operator, and its floating-point sums."""
    try:
        # Over Connect nothing is analyzed before the schema is read.
        schema = _applied(operator, inputs, session).schema
        return schema, _check(operator, inputs, schema)
    except DeclarationError:
        raise
    except Exception as error:  # a user's function may raise anything
        raise _refused(operator, inputs, error) from error


def _applied(operator: Operator, inputs: Sequence[DataFrame], session: Session) -> DataFrame:
    if isinstance(operator, Source):
        return empty_source(session, operator.schema)
    return apply_logical(operator, inputs)


def _check(  # noqa: C901  one case per operator
    operator: Operator, inputs: Sequence[DataFrame], schema: StructType
) -> frozenset[str]:
    """Checks that Spark does not make, or makes later; returns the floating-point sums."""
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
            check_keys(operator, operator.by, inputs[0])
            return check_aggregate(operator, inputs[0], schema)
        case Join():
            check_keys(operator, operator.on, inputs[0])
            check_join(operator, *inputs)
        case Distinct():
            check_keys(operator, schema.names, inputs[0])
        case Top():
            check_keys(operator, operator.per, inputs[0])
        case Source() | Filter() | Select() | Transform() | Union() | Sink():
            pass
        case _:
            assert_never(operator)
    return frozenset()


def _refused(operator: Operator, inputs: Sequence[DataFrame], error: Exception) -> RefusedBySpark:
    condition, reason = cause_of(error)
    columns = [f"{name} {kind}" for rows in inputs for name, kind in listed(rows.schema)]
    instead = f"The columns here are: {', '.join(columns)}." if columns else "Check its types."
    sql = rejected_part(operator, inputs)
    return RefusedBySpark(operator.at, kind_of(operator), sql, condition, reason, instead)
