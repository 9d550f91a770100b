"""Health: whether a server can do its work, asked on a thread of its own and answered in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from tidegate.errors import ServerTrouble

if TYPE_CHECKING:
    from tidegate.runtime.daemon_pool import DaemonPool


MARGIN = 1.0
"""Seconds more than a look may take, so that it can say itself what is wrong."""


class Health:
    """Looks when it is asked. All that ask during one look get its outcome."""

    def __init__(self, look: Callable[[], None], seconds: float, thread: DaemonPool) -> None:
        self._look = look
        self._seconds = seconds + MARGIN
        self._thread = thread
        self._under_way: Future[None] | None = None

    async def check(self) -> None:
        """Raise what is wrong; `ServerTrouble` if that is not known in time."""
        if self._under_way is None or self._under_way.done():
            self._under_way = self._thread.submit(self._look)
        outcome = asyncio.wrap_future(self._under_way)
        done, _ = await asyncio.wait([outcome], timeout=self._seconds)
        if not done:
            outcome.add_done_callback(asyncio.Future.exception)  # known to no request any more
            raise ServerTrouble(f"no answer within {self._seconds:g} s")
        outcome.result()
