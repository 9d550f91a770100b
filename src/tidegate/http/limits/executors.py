"""Thread pools for blocking calls, so that the event loop never blocks.

Queries, arriving bytes, chunks and results have separate threads: however many chunks are being
checked, queries are answered and other chunks arrive. Clients are served in turn. Threads are
daemons: one that never returns does not keep the process from ending.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import ParamSpec, Self, TypeVar

from tidegate.errors import ServerStopping
from tidegate.http.limits.fair_pool import FairPool
from tidegate.http.limits.limits import HttpLimits
from tidegate.runtime.daemon_pool import INTERRUPT_BOUND, DaemonPool

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger(__name__)


class Executors:
    """Runs blocking calls; raises `ServerStopping` once it is closed."""

    def __init__(self, limits: HttpLimits) -> None:
        self._calls = FairPool(limits.calls, "tidegate-http")
        self._writes = DaemonPool(limits.writes, "tidegate-http-writes")
        self._chunks = FairPool(limits.deliveries, "tidegate-http-chunks")
        self._results = FairPool(limits.results, "tidegate-http-results")
        self.health = DaemonPool(1, "tidegate-http-health")
        """Separate, so that busy threads are not mistaken for a lost database."""
        self.is_closing = False

    async def call(self, client: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a short query when it is the client's turn."""
        self._check_open()
        return await self._calls.run(client, partial(work, *args, **kwargs))

    async def write(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Write a part of an arriving chunk to the disk."""
        self._check_open()
        return await asyncio.wrap_future(self._writes.submit(work, *args, **kwargs))

    async def deliver(
        self, client: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Check and copy a whole chunk when it is the client's turn."""
        self._check_open()
        return await self._chunks.run(client, partial(work, *args, **kwargs))

    async def give(self, client: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Read a part of a result when it is the client's turn."""
        self._check_open()
        return await self._results.run(client, partial(work, *args, **kwargs))

    def _check_open(self) -> None:
        if self.is_closing:
            raise ServerStopping

    def close(self, bound: float = INTERRUPT_BOUND) -> None:
        """Wait at most `bound` seconds for running work, and abandon the rest."""
        self.is_closing = True
        until = monotonic() + bound
        pools = (self._calls, self._writes, self._chunks, self._results, self.health)
        ended = [pool.close(max(0.0, until - monotonic())) for pool in pools]
        if not all(ended):
            log.warning("some requests did not end within %g s and are left behind", bound)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
