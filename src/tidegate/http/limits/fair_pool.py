"""Threads that serve clients in turn: runs a `FairQueue` under asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from tidegate.http.limits.fair_queue import FairQueue
from tidegate.runtime.daemon_pool import DaemonPool

T = TypeVar("T")


class FairPool:
    """Runs work of clients in turn. Its methods are called in one event loop, except `close`."""

    def __init__(self, number: int, name: str) -> None:
        self._pool = DaemonPool(number, name)
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue(number)

    async def run(self, client: str, work: Callable[[], T]) -> T:
        """Run when it is the client's turn; once begun it runs to its end, also if cancelled."""
        await self._turn(client)
        loop = asyncio.get_running_loop()
        outcome = self._pool.submit(work)

        def leave(_: object) -> None:
            with suppress(RuntimeError):  # the loop is closed: no turn is awaited
                loop.call_soon_threadsafe(self._end, client)

        outcome.add_done_callback(leave)
        return await asyncio.wrap_future(outcome)

    async def _turn(self, client: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.put(client, turn)
        self._start()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was granted at the same time
                self._end(client)
            raise

    def _start(self) -> None:
        while (started := self._queue.take()) is not None:
            client, turn = started
            if turn.cancelled():
                self._queue.done(client)
            else:
                turn.set_result(None)

    def _end(self, client: str) -> None:
        self._queue.done(client)
        self._start()

    def close(self, bound: float) -> bool:
        """Wait for running work; whether it ended in time."""
        return self._pool.close(bound)
