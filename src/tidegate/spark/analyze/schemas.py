"""Empty DataFrames of given schemas, to analyze types before any data is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as fn
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from tidegate.pipeline.nodes import SourceField
    from tidegate.spark.session.sessions import Session


Schema: TypeAlias = StructType
"""Names and types of columns, for packages that do not import Spark."""


def empty(session: Session, schema: StructType) -> DataFrame:
    """No rows of this schema."""
    columns = [fn.lit(None).cast(field.dataType).alias(field.name) for field in schema]
    return session.range(0).select(*columns)


def empty_source(session: Session, fields: Sequence[SourceField]) -> DataFrame:
    """No rows of the declared columns, whose types are still text."""
    columns = [fn.lit(None).cast(field.type).alias(field.name) for field in fields]
    return session.range(0).select(*columns)


def column(name: str) -> Column:
    """The column of exactly this name, with any characters."""
    return fn.col("`" + name.replace("`", "``") + "`")


def listed(schema: StructType) -> tuple[tuple[str, str], ...]:
    """Names and types as text, as in a declaration."""
    return tuple((field.name, field.dataType.simpleString()) for field in schema)
