"""A source that follows a Spark stream cannot do what was asked."""

from __future__ import annotations

from tidegate.errors.runs import RunError


class BatchAborted(RunError):
    """A source is to end, and a batch of its stream was begun and given up.

    `batch` is Spark's number, from 0; `chunk` the number of the chunk that it was to become.
    """

    http_status = 409

    run: str
    source: str
    batch: int
    chunk: int
    message = (
        "source {source!r} of run {run!r} cannot end with the chunks it has: batch {batch} of its"
        " stream, which is chunk {chunk}, was begun and not delivered. Follow the stream again with"
        " the same checkpoint and call finish(); or declare the number of chunks to leave it out"
    )


class BatchNotDelivered(RunError):
    """A source is to end, and a batch of its stream was begun and is not there within the bound."""

    http_status = 409

    retryable = True

    run: str
    source: str
    batch: int
    chunk: int
    seconds: float
    message = (
        "source {source!r} of run {run!r} was not ended: batch {batch} of its stream, which is"
        " chunk {chunk}, was not delivered within {seconds:g} s. If a process still follows the"
        " stream, call again; if not, follow it again with the same checkpoint and call finish()"
    )


class StreamUnfinished(RunError):
    """A stream still has batches when the time to finish it is over."""

    retryable = True

    run: str
    source: str
    seconds: float
    message = (
        "the stream of source {source!r} of run {run!r} has rows that were not taken within"
        " {seconds:g} s. The stream continues, and the source is open: call finish() again"
    )
