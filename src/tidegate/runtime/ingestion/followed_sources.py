"""Ending sources that follow streams: not before the batch at work is delivered."""

from __future__ import annotations

from threading import Event as Flag
from time import monotonic
from typing import TYPE_CHECKING

from tidegate.errors import BatchAborted, BatchNotDelivered

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.runtime.ingestion.stream_ingestion import FollowedStream

GLANCE = 0.05
"""Seconds after which a batch at work is looked for again."""


class FollowedSources:
    """The streams that this process follows, by run and source."""

    def __init__(self, seconds: float) -> None:
        """`seconds` is how long an END waits for a batch."""
        self._seconds = seconds
        self._followings: dict[tuple[str, str], FollowedStream] = {}

    def add(self, following: FollowedStream) -> FollowedStream:
        """Remember a stream; of a source that is followed again, the latest."""
        self._followings[following.run, following.source] = following
        return following

    def end(self, run: str, source: str, end: Callable[[], None]) -> None:
        """Call `end` until no batch is at work.

        Raises `BatchAborted` if one was given up in this process, and `BatchNotDelivered` after
        the bound: whether another process still works on it cannot be seen from here.
        """
        deadline = monotonic() + self._seconds
        following = self._followings.get((run, source))
        while True:
            # Before `end`: a batch delivered while `end` fails is found by the next try.
            may_come = following is None or following.may_deliver
            try:
                end()
            except BatchAborted as missing:
                if not may_come:
                    raise
                if monotonic() >= deadline:
                    its = (missing.batch, missing.chunk, self._seconds)
                    raise BatchNotDelivered(run, source, *its) from None
            else:
                self._followings.pop((run, source), None)
                return
            Flag().wait(GLANCE)
