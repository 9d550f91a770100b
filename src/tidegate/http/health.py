"""Health check of a server: run on a separate thread, answered within a bound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from tidegate.errors import ServerTrouble

if TYPE_CHECKING:
    from tidegate.runtime.daemon_pool import DaemonPool


MARGIN = 1.0
"""Seconds added to the bound of the check, so that the check itself can report its failure."""


class Health:
    """Runs the check on request. Requests during one check share its outcome."""

    def __init__(self, run_check: Callable[[], None], seconds: float, thread: DaemonPool) -> None:
        self._run_check = run_check
        self._seconds = seconds + MARGIN
        self._thread = thread
        self._running: Future[None] | None = None

    async def check(self) -> None:
        """Raise the error of the check; `ServerTrouble` if it does not end in time."""
        if self._running is None or self._running.done():
            self._running = self._thread.submit(self._run_check)
        outcome = asyncio.wrap_future(self._running)
        done, _ = await asyncio.wait([outcome], timeout=self._seconds)
        if not done:
            outcome.add_done_callback(asyncio.Future.exception)  # retrieved, so not logged as lost
            raise ServerTrouble(f"no answer within {self._seconds:g} s")
        outcome.result()
