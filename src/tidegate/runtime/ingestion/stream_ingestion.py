"""Ingests a Spark stream: its micro-batches become the chunks of a source, each exactly once.

    stream = server.follow("march", "sales", spark.readStream…, checkpoint="/data/sales-stream")
    …
    stream.finish(timeout=600)

The number of a batch determines the number of its chunk, so a batch that Spark repeats after a
crash is recognised. There is no END until the stream is finished or the source is ended; until then
the checkpoints of the run have results. The start of a batch is recorded before it is copied, so
that END cannot leave out an abandoned batch.
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
    from tidegate.pipeline.nodes import SourceField
    from tidegate.spark import Rows, StreamQuery

Copy: TypeAlias = "Callable[[str, str], Batch]"
LEAST_WAIT = 0.1


@dataclass(frozen=True, slots=True)
class StreamDelivery:
    """The functions of `RunService` that a stream uses."""

    begin: Callable[[str, str, int], None]
    """Record that the chunk of a run, source and number has begun."""
    deliver: Callable[[str, str, int, str, Copy], bool]
    end: Callable[[str, str], None]
    """End a source that has all its chunks."""


class _BatchIngestion:
    """Delivers the batches of one stream as chunks of a source."""

    def __init__(
        self,
        run: str,
        source: str,
        fields: Sequence[SourceField],
        checkpoint: str,
        chunks: StreamDelivery,
    ) -> None:
        self.run = run
        self.source = source
        self.chunks = chunks
        self.idle = Flag()
        """Set while no batch is in progress."""
        self.idle.set()
        self.errors: list[TidegateError] = []
        """Why batches were not delivered."""
        self._fields = fields
        self._checkpoint = checkpoint

    def ingest(self, batch: Rows, number: int) -> None:
        """Deliver a batch, which Spark numbers from 0."""
        self.idle.clear()
        try:
            self._deliver(batch, number)
        except TidegateError as error:
            self.errors.append(error)
            raise
        finally:
            self.idle.set()

    def note_planned(self) -> None:
        """Record the last batch that Spark has planned as begun, even if it was not executed."""
        planned = planned_batch(self._checkpoint)
        if planned is not None:
            self.chunks.begin(self.run, self.source, planned + 1)

    def _deliver(self, batch: Rows, number: int) -> None:
        identity = f"{stream_id(self._checkpoint)}/{number}"
        sha256 = hashlib.sha256(identity.encode()).hexdigest()
        self.chunks.begin(self.run, self.source, number + 1)

        def copy(root: str, beginning: str) -> Batch:
            return copy_rows(self._fields, batch, root, beginning)

        self.chunks.deliver(self.run, self.source, number + 1, sha256, copy)


class FollowedStream:
    """A stream whose batches are delivered as chunks."""

    def __init__(
        self,
        ingestion: _BatchIngestion,
        start: Callable[[float | None], StreamQuery],
        every: float | None,
    ) -> None:
        self.run = ingestion.run
        self.source = ingestion.source
        self._ingestion = ingestion
        self._start = start
        self._drains = every is None
        self._is_finished = False
        self.query = start(every)

    @property
    def is_active(self) -> bool:
        """Whether the stream may have further batches."""
        return self.query.isActive

    @property
    def may_deliver(self) -> bool:
        """Whether a batch that was begun may still be delivered."""
        return self.is_active or not self._ingestion.idle.is_set()

    def check(self) -> None:
        """Raise `StreamFailed` if an error has ended it."""
        reason = failure_of(self.query)
        if reason:
            errors = self._ingestion.errors
            cause = errors[-1] if errors else None
            raise StreamFailed(self.run, self.source, str(cause or reason)) from cause

    def wait(self, timeout: float) -> bool:
        """Whether it ends in time; raises `StreamFailed`."""
        ended = is_ended(self.query, timeout)
        self.check()
        return ended

    def stop(self) -> None:
        """Stop the stream. Its batch in progress is abandoned, and repeated by the next start.

        A source with an abandoned batch does not end without it: `finish` delivers it.
        """
        self.query.stop()
        with suppress(RunError):  # of a closed run there is nothing to record
            self._ingestion.note_planned()

    def finish(self, timeout: float) -> None:
        """Deliver all that the stream has now, then end the source.

        Also after `stop` or a failure. Raises `StreamUnfinished` after the timeout, or
        `StreamFailed`; the source stays open then.
        """
        if self._is_finished:
            return
        deadline = monotonic() + timeout
        if not (self.is_active and self._drains):
            self._drain(deadline - monotonic())
        if not self.wait(max(LEAST_WAIT, deadline - monotonic())):
            raise StreamUnfinished(self.run, self.source, timeout)
        self._ingestion.chunks.end(self.run, self.source)
        self._is_finished = True

    def _drain(self, seconds: float) -> None:
        """Restart the stream so that it delivers what it has and ends."""
        if not self._ingestion.idle.wait(max(LEAST_WAIT, seconds)):
            raise StreamUnfinished(self.run, self.source, seconds)
        self.query.stop()
        self._ingestion.errors.clear()
        self.query = self._start(None)
        self._drains = True


def follow(
    run: str,
    source: str,
    fields: Sequence[SourceField],
    rows: Rows,
    delivery: StreamDelivery,
    *,
    checkpoint: str,
    every: float | None,
) -> FollowedStream:
    """Deliver the batches of a stream as chunks; see the module."""
    check_stream(source, fields, rows)
    ingestion = _BatchIngestion(run, source, fields, checkpoint, delivery)

    def start(interval: float | None) -> StreamQuery:
        return follow_stream(rows, ingestion.ingest, checkpoint, interval, f"{run}.{source}")

    return FollowedStream(ingestion, start, every)
