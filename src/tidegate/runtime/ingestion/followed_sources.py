"""Ends streaming sources after their batch in progress is delivered."""

from __future__ import annotations

from threading import Event as Flag
from time import monotonic
from typing import TYPE_CHECKING

from tidegate.errors import BatchAborted, BatchNotDelivered

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.runtime.ingestion.stream_ingestion import FollowedStream

POLL = 0.05
"""Seconds between two attempts to end a source."""


class FollowedSources:
    """The streams that this process follows, by run and source."""

    def __init__(self, seconds: float) -> None:
        """`seconds` is how long an END waits for a batch."""
        self._seconds = seconds
        self._streams: dict[tuple[str, str], FollowedStream] = {}

    def add(self, stream: FollowedStream) -> FollowedStream:
        """Add a stream; it replaces an earlier one of the same source."""
        self._streams[stream.run, stream.source] = stream
        return stream

    def end(self, run: str, source: str, end: Callable[[], None]) -> None:
        """Call `end` until no batch is in progress.

        Raises `BatchAborted` if a batch was abandoned in this process, and `BatchNotDelivered`
        after the bound: another process may still deliver it.
        """
        deadline = monotonic() + self._seconds
        stream = self._streams.get((run, source))
        while True:
            # Read before `end`: a batch delivered while `end` fails is found by the next attempt.
            may_come = stream is None or stream.may_deliver
            try:
                end()
            except BatchAborted as missing:
                if not may_come:
                    raise
                if monotonic() >= deadline:
                    raise BatchNotDelivered(
                        run, source, missing.batch, missing.chunk, self._seconds
                    ) from None
            else:
                self._streams.pop((run, source), None)
                return
            Flag().wait(POLL)
