"""A few threads for what waits, so that the event loop never does.

Chunks and results have threads of their own: however many come and go, somebody has time to
answer who asks how far a run is. The bounds are on what works at once; the rest waits its turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import ParamSpec, Self, TypeVar

from tidegate.errors import ServerStopping

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """How much the interface takes at once."""

    chunk_bytes: int = 1 << 30
    uploads: int = 4
    """Chunks of one client that arrive at the same time; the rest waits before it is read."""
    gap: float = 60.0
    """Seconds within which the next bytes of a chunk have to come."""
    least_rate: int = 16 << 10
    """Bytes per second that a chunk has to come with on average."""
    patience: float = 60.0
    """Seconds after which its rate is looked at."""
    followers: int = 32
    """Streams of events that one client may have at the same time."""
    connections: int = 512
    """Of all clients; who comes then is told to come again."""
    deliveries: int = 2
    """Chunks that are checked and copied at the same time."""
    results: int = 2
    """Results that are read, or ordered for CSV, at the same time."""
    calls: int = 4
    """Questions to PostgreSQL at the same time."""


class Threads:
    """Runs what waits; refuses to once it is closed."""

    def __init__(self, limits: Limits) -> None:
        self._calls = ThreadPoolExecutor(limits.calls, thread_name_prefix="tidegate-http")
        self._chunks = ThreadPoolExecutor(
            limits.deliveries, thread_name_prefix="tidegate-http-chunks"
        )
        self._results = ThreadPoolExecutor(
            limits.results, thread_name_prefix="tidegate-http-results"
        )
        self.is_closing = False

    async def call(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Something short."""
        return await self._run(self._calls, partial(work, *args, **kwargs))

    async def deliver(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Something about a chunk."""
        return await self._run(self._chunks, partial(work, *args, **kwargs))

    async def give(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Something about a result."""
        return await self._run(self._results, partial(work, *args, **kwargs))

    async def _run(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        if self.is_closing:
            raise ServerStopping
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    def close(self) -> None:
        """Wait for what is at work."""
        self.is_closing = True
        for pool in (self._calls, self._chunks, self._results):
            pool.shutdown(cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
