"""A source that is a stream: Spark's micro-batches become the chunks of a run, each once.

    following = follow(server, "march", "sales", spark.readStream…, checkpoint="/data/sales-stream")
    …
    following.finish(timeout=600)

The number of a batch is the number of its chunk. A batch that Spark gives again after a crash,
because it does not know that it was taken, is recognised. There is no END until the source is
finished or ended: such a run is cut, and each cut is a result. That a batch is begun is recorded
before it is copied, so that no END, wherever it comes from, leaves out a batch that was given up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import Event as Flag
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias

from tidegate.errors import RunError, StreamFailed, StreamUnfinished, TidegateError
from tidegate.spark import (
    check_stream,
    copy_rows,
    failure_of,
    is_ended,
    planned_batch,
    stream_id,
)
from tidegate.spark import follow as follow_stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.dataflow import Batch
    from tidegate.pipeline import Pipeline
    from tidegate.pipeline.nodes import SourceField
    from tidegate.spark import Rows, StreamQuery

Copy: TypeAlias = "Callable[[str, str], Batch]"
LEAST_WAIT = 0.1


@dataclass(frozen=True, slots=True)
class Chunks:
    """Functions of the server to which a stream delivers its batches."""

    begin: Callable[[str, str, int], None]
    """Record that the chunk of a run, a source and a number is under way."""
    deliver: Callable[[str, str, int, str, Copy], bool]
    end: Callable[[str, str], None]
    """Close a source that has all its chunks."""


class _Taking:
    """Takes the batches of one stream as chunks of a source."""

    def __init__(
        self, run: str, source: str, fields: Sequence[SourceField], checkpoint: str, chunks: Chunks
    ) -> None:
        self.run = run
        self.source = source
        self.chunks = chunks
        self.idle = Flag()
        """Set while no batch is at work."""
        self.idle.set()
        self.troubles: list[TidegateError] = []
        """Why batches were not taken."""
        self._fields = fields
        self._checkpoint = checkpoint

    def take(self, batch: Rows, number: int) -> None:
        """Deliver a batch, which Spark numbers from 0."""
        self.idle.clear()
        try:
            self._deliver(batch, number)
        except TidegateError as trouble:
            self.troubles.append(trouble)
            raise
        finally:
            self.idle.set()

    def note_planned(self) -> None:
        """Record the last batch that Spark has planned as begun, even if it was not handed over."""
        planned = planned_batch(self._checkpoint)
        if planned is not None:
            self.chunks.begin(self.run, self.source, planned + 1)

    def _deliver(self, batch: Rows, number: int) -> None:
        known_as = f"{stream_id(self._checkpoint)}/{number}"
        sha256 = hashlib.sha256(known_as.encode()).hexdigest()
        self.chunks.begin(self.run, self.source, number + 1)

        def copy(root: str, beginning: str) -> Batch:
            return copy_rows(self._fields, batch, root, beginning)

        self.chunks.deliver(self.run, self.source, number + 1, sha256, copy)


class FollowedStream:
    """A stream that is followed."""

    def __init__(
        self, taking: _Taking, start: Callable[[float | None], StreamQuery], every: float | None
    ) -> None:
        self.run = taking.run
        self.source = taking.source
        self._taking = taking
        self._start = start
        self._drains = every is None
        self._is_finished = False
        self.query = start(every)

    @property
    def is_active(self) -> bool:
        """Whether batches may still come."""
        return self.query.isActive

    @property
    def may_deliver(self) -> bool:
        """Whether a batch that was begun may still be delivered."""
        return self.is_active or not self._taking.idle.is_set()

    def check(self) -> None:
        """Raise `StreamFailed` if it has ended by an error."""
        reason = failure_of(self.query)
        if reason:
            troubles = self._taking.troubles
            cause = troubles[-1] if troubles else None
            raise StreamFailed(self.run, self.source, str(cause or reason)) from cause

    def wait(self, timeout: float) -> bool:
        """Whether it ends in time; `StreamFailed` if by an error."""
        ended = is_ended(self.query, timeout)
        self.check()
        return ended

    def stop(self) -> None:
        """Take no more batches. The one at work is given up, and comes again with the next start.

        A source whose batch was given up does not end without it: `finish` takes it after all.
        """
        self.query.stop()
        with suppress(RunError):  # of a run that is closed there is nothing to record
            self._taking.note_planned()

    def finish(self, timeout: float) -> None:
        """Take all that the stream has now, the batch at work first, then end the source.

        It may have been stopped or have failed before. Raises `StreamUnfinished` if that is not
        done in so many seconds, `StreamFailed`; the source is open then.
        """
        if self._is_finished:
            return
        deadline = monotonic() + timeout
        if not (self.is_active and self._drains):
            self._drain(deadline - monotonic())
        if not self.wait(max(LEAST_WAIT, deadline - monotonic())):
            raise StreamUnfinished(self.run, self.source, timeout)
        self._taking.chunks.end(self.run, self.source)
        self._is_finished = True

    def _drain(self, seconds: float) -> None:
        """Start it again, to take what there is and to end by itself."""
        if not self._taking.idle.wait(max(LEAST_WAIT, seconds)):
            raise StreamUnfinished(self.run, self.source, seconds)
        self.query.stop()
        self._taking.troubles.clear()
        self.query = self._start(None)
        self._drains = True


class StreamIngestion:
    """Attaches streams to the sources of a pipeline's runs."""

    def __init__(self, pipeline: Pipeline, chunks: Chunks) -> None:
        self._pipeline = pipeline
        self._chunks = chunks

    def follow(
        self, run: str, source: str, rows: Rows, *, checkpoint: str, every: float | None
    ) -> FollowedStream:
        """Deliver the batches of a stream as chunks; see the module."""
        fields = self._pipeline.sources[source].schema
        check_stream(source, fields, rows)
        taking = _Taking(run, source, fields, checkpoint, self._chunks)

        def start(rhythm: float | None) -> StreamQuery:
            return follow_stream(rows, taking.take, checkpoint, rhythm, f"{run}.{source}")

        return FollowedStream(taking, start, every)
