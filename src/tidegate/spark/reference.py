"""Reference results: the declaration as one plain Spark query per sink.

Without stages, shards, batches or partial results; tests and the demo compare with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.pipeline.nodes import Sink, Source
from tidegate.plan.logical import logical_plan
from tidegate.spark.analyze.logical_operators import apply_logical
from tidegate.spark.analyze.schemas import empty_source
from tidegate.spark.ingest.readers import read_chunks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from tidegate.pipeline import Pipeline
    from tidegate.spark.session.sessions import Session


def reference(
    session: Session, pipeline: Pipeline, sources: Mapping[str, Sequence[str]]
) -> dict[str, DataFrame]:
    """The expected rows of every sink, given the files of each source; evaluated lazily."""
    known: dict[str, DataFrame] = {}
    sinks: dict[str, DataFrame] = {}
    for node in logical_plan(pipeline).nodes:
        operator = node.operator
        if isinstance(operator, Source):
            schema = empty_source(session, operator.schema).schema
            files = sources.get(operator.name, ())
            known[node.id] = read_chunks(session, operator.name, schema, files)
            continue
        known[node.id] = apply_logical(operator, [known[it] for it in node.inputs])
        if isinstance(operator, Sink):
            sinks[operator.name] = known[node.id]
    return sinks
