"""A source that is a stream: Spark's micro-batches become the chunks of a run, each once.

    following = follow(server, "march", "sales", spark.readStream…, checkpoint="/data/sales-stream")
    …
    following.stop()

The number of a batch is the number of its chunk. A batch that Spark gives again after a crash,
because it does not know that it was taken, is recognised. There is no END until somebody ends the
source: such a run is cut, and each cut is a result.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.errors import StreamFailed, TidegateError
from tidegate.spark import check_stream, copy_rows, failure_of, is_ended, stream_id
from tidegate.spark import follow as follow_stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.pipeline import Pipeline
    from tidegate.spark import Batch, Rows, Stream

    Deliver = Callable[[str, str, int, str, Callable[[str, str], Batch]], bool]


@dataclass(frozen=True)
class Following:
    """A stream that is followed."""

    run: str
    source: str
    query: Stream
    troubles: list[TidegateError]
    """Why batches were not taken."""

    @property
    def is_active(self) -> bool:
        """Whether batches may still come."""
        return self.query.isActive

    def check(self) -> None:
        """Raise `StreamFailed` if it has ended by an error."""
        reason = failure_of(self.query)
        if reason:
            cause = self.troubles[-1] if self.troubles else None
            raise StreamFailed(self.run, self.source, str(cause or reason)) from cause

    def wait(self, timeout: float) -> bool:
        """Whether it ends in time; `StreamFailed` if by an error."""
        ended = is_ended(self.query, timeout)
        self.check()
        return ended

    def stop(self) -> None:
        """Take no more batches; the one at work is given up and comes again with the next start."""
        self.query.stop()


class Follower:
    """Attaches streams to the sources of a pipeline's runs."""

    def __init__(self, pipeline: Pipeline, deliver: Deliver) -> None:
        self._pipeline = pipeline
        self._deliver = deliver

    def follow(
        self, run: str, source: str, rows: Rows, *, checkpoint: str, every: float | None
    ) -> Following:
        """Deliver the batches of a stream as chunks; see the module."""
        fields = self._pipeline.sources[source].schema
        check_stream(source, fields, rows)
        troubles: list[TidegateError] = []

        def take(batch: Rows, number: int) -> None:
            known_as = f"{stream_id(checkpoint)}/{number}"
            sha256 = hashlib.sha256(known_as.encode()).hexdigest()
            try:
                self._deliver(run, source, number + 1, sha256, copy(batch))
            except TidegateError as trouble:
                troubles.append(trouble)
                raise

        def copy(batch: Rows) -> Callable[[str, str], Batch]:
            return lambda root, beginning: copy_rows(fields, batch, root, beginning)

        query = follow_stream(rows, take, checkpoint, every, f"{run}.{source}")
        return Following(run, source, query, troubles)
