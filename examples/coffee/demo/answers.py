"""Result rows of the demo: those of the pipeline, and those of plain Spark for the same files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from tidegate.spark import reference
from tidegate_examples.coffee import pipeline

if TYPE_CHECKING:
    from tidegate.dataflow import Batch
    from tidegate.spark import Session

Rows: TypeAlias = list[tuple[object, ...]]
Answers: TypeAlias = dict[str, Rows]
"""The rows of every sink, in no order."""


def plain_answers(session: Session, files: Mapping[str, Sequence[str]]) -> Answers:
    """One plain query per sink: no stages, shards, batches or partial results."""
    return {
        sink: [tuple(row) for row in frame.collect()]
        for sink, frame in reference(session, pipeline, files).items()
    }


def released_answers(
    session: Session, root: str, results: Mapping[str, Sequence[Batch]]
) -> Answers:
    """The result rows of a run."""
    return {sink: _rows(session, root, batches) for sink, batches in results.items()}


def _rows(session: Session, root: str, batches: Sequence[Batch]) -> Rows:
    files = [f"{root}/{file}" for batch in batches for file in batch.files]
    return [tuple(row) for row in session.read.parquet(*files).collect()] if files else []


def differing(ours: Answers, expected: Answers) -> list[str]:
    """The sinks whose rows differ."""
    sinks = sorted(ours.keys() | expected.keys())
    return [sink for sink in sinks if Counter(ours.get(sink)) != Counter(expected.get(sink))]
