"""Asking Spark's analyser about a declaration, operator by operator, before any data is touched.

Every operator is applied to empty inputs of the right types. The first one that Spark refuses
becomes an error that points at the user's line, like any other mistake in a declaration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql.types import NullType

from tidegate.errors import DeclarationError, DuplicateColumn, RefusedBySpark
from tidegate.pipeline.names import first_repeated
from tidegate.pipeline.nodes import Aggregate, Join, Sink, Source
from tidegate.plan.logical import logical_plan
from tidegate.plan.planner import physical_plan
from tidegate.spark.causes import SPARK_ERRORS, cause_of
from tidegate.spark.checks import check_aggregate, check_join
from tidegate.spark.declared import apply_operator
from tidegate.spark.prepare import prepare
from tidegate.spark.schemas import empty, empty_source, listed
from tidegate.spark.sessions import borrowed
from tidegate.spark.wording import guilty_part, kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from tidegate.pipeline import Pipeline
    from tidegate.pipeline.nodes import Node
    from tidegate.spark.sessions import Session

Schema: TypeAlias = "tuple[tuple[str, str], ...]"
"""Names and types of columns, as text."""


def analyze(pipeline: Pipeline, session: Session | None = None) -> Mapping[str, Schema]:
    """The columns of every sink. Without a session it makes one and stops it again.

    Raises a `DeclarationError` that points at the first line which cannot work.
    """
    with borrowed(session) as own:
        schemas = analyze_operators(pipeline, own)
        _check_stages(pipeline, own)
    return schemas


def _check_stages(pipeline: Pipeline, session: Session) -> None:
    """What was fine operator by operator must be fine as the stages that will run."""
    try:
        prepare(physical_plan(pipeline), session)
    except SPARK_ERRORS as error:
        instead = "Its operators are fine one by one: please report this as a mistake of Tidegate."
        cause = cause_of(error)
        raise RefusedBySpark(pipeline.at, "plan", pipeline.name, *cause, instead) from error


def analyze_operators(pipeline: Pipeline, session: Session) -> dict[str, Schema]:
    """The columns of every sink, of the declaration as it stands."""
    known: dict[str, StructType] = {}
    sinks: dict[str, Schema] = {}
    for node in logical_plan(pipeline).nodes:
        inputs = [empty(session, known[upstream]) for upstream in node.inputs]
        known[node.id] = _schema_of(node.operator, inputs, session)
        if isinstance(node.operator, Sink):
            sinks[node.operator.name] = listed(known[node.id])
    return sinks


def _schema_of(operator: Node, inputs: Sequence[DataFrame], session: Session) -> StructType:
    """The columns an operator makes; raises when it cannot."""
    try:
        # Over Connect nothing is analysed until somebody asks for the schema.
        schema = _applied(operator, inputs, session).schema
        _check(operator, inputs, schema)
    except DeclarationError:
        raise
    except Exception as error:  # a user's function may raise anything
        raise _refused(operator, inputs, error) from error
    return schema


def _applied(operator: Node, inputs: Sequence[DataFrame], session: Session) -> DataFrame:
    if isinstance(operator, Source):
        return empty_source(session, operator.schema)
    return apply_operator(operator, inputs)


def _check(operator: Node, inputs: Sequence[DataFrame], schema: StructType) -> None:
    """What Spark lets pass here and would fail on later, or not at all."""
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
            check_aggregate(operator, inputs[0], schema)
        case Join():
            check_join(operator, *inputs)


def _refused(operator: Node, inputs: Sequence[DataFrame], error: Exception) -> RefusedBySpark:
    condition, reason = cause_of(error)
    columns = [f"{name} {kind}" for rows in inputs for name, kind in listed(rows.schema)]
    instead = f"The columns here are: {', '.join(columns)}." if columns else "Check its types."
    sql = guilty_part(operator, inputs)
    return RefusedBySpark(operator.at, kind_of(operator), sql, condition, reason, instead)
