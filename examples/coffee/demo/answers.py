"""Result rows of the demo: those of the pipeline, and those of plain Spark for the same files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from tidegate.testing import reference
from tidegate_examples.coffee import pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    import tidegate as tg

Rows: TypeAlias = list[tuple[object, ...]]
Answers: TypeAlias = dict[str, Rows]
"""The rows of every sink, in no order."""


def plain_answers(session: SparkSession, files: Mapping[str, Sequence[str]]) -> Answers:
    """One plain query per sink: no stages, shards, batches or partial results."""
    frames = reference(session, pipeline, files)
    return {sink: [tuple(row) for row in frame.collect()] for sink, frame in frames.items()}


def released_answers(session: SparkSession, results: tg.Results) -> Answers:
    """The result rows of a run."""
    return {
        sink: [tuple(row) for row in result.to_df(session).collect()]
        for sink, result in results.items()
    }


def differing(ours: Answers, expected: Answers) -> list[str]:
    """The sinks whose rows differ."""
    sinks = sorted(ours.keys() | expected.keys())
    return [sink for sink in sinks if Counter(ours.get(sink)) != Counter(expected.get(sink))]
