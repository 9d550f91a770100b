"""Chunks on their way in: spooled to the deployment while they arrive, whole or not at all."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect

from tidegate.errors import (
    ChunkTooLarge,
    TooManyUploads,
    UploadInterrupted,
    UploadStalled,
    UploadTooSlow,
)

if TYPE_CHECKING:
    from starlette.requests import Request

    from tidegate.http.limits.executors import Executors
    from tidegate.http.limits.limits import HttpLimits
    from tidegate.http.spool import Spool, SpooledFile

BLOCK = 1 << 18
"""Bytes that are written at a time."""
DRAINED, DRAINING = 4 << 20, 2.0
"""Bytes of a refused chunk that are read, and seconds: who is still sending may not hear that it
is refused."""


@dataclass(frozen=True, slots=True)
class Admission:
    """Checks before so many more bytes are accepted; each raises the reason for a refusal."""

    quota: Callable[[str, int], None]
    """Checks the quota of a client."""
    space: Callable[[int], None]
    """Checks the free space on the disk."""


ANY = Admission(lambda _client, _incoming: None, lambda _incoming: None)


class Uploads:
    """Receives chunks, a few of each client at a time: one that is slow is in nobody's way."""

    def __init__(
        self,
        spool: Spool,
        executors: Executors,
        limits: HttpLimits,
        admission: Admission = ANY,
    ) -> None:
        self._admission = admission
        self._spool = spool
        self._executors = executors
        self._limits = limits
        self._places = defaultdict[str, asyncio.Semaphore](
            lambda: asyncio.Semaphore(limits.uploads)
        )
        """By client."""
        self._waiting: Counter[str] = Counter()

    @asynccontextmanager
    async def received(
        self, client: str, request: Request, source: str, number: int, ending: str
    ) -> AsyncIterator[str]:
        """A file with the whole body; gone at the end of the block."""
        arriving = _UploadBody(request, source, number, self._limits)
        await arriving.refuse_announced()
        async with self._place(client):
            await self._admit(client, arriving.announced or 0)
            file = await self._executors.write(self._spool.file, ending)
            try:
                await self._write(arriving, file)
                yield file.path
            finally:
                file.remove()

    @asynccontextmanager
    async def _place(self, client: str) -> AsyncIterator[None]:
        """One of the client's places until the end of the block; raises `TooManyUploads`."""
        place = self._places[client]
        if place.locked() and self._waiting[client] >= self._limits.uploads_waiting:
            raise TooManyUploads(self._limits.uploads_waiting)
        self._waiting[client] += 1
        try:
            await place.acquire()
        finally:
            self._waiting[client] -= 1
        try:
            yield
        finally:
            place.release()

    async def _admit(self, client: str, incoming: int) -> None:
        await self._executors.call(client, self._admission.quota, client, incoming)
        await self._executors.write(self._admission.space, incoming)

    async def _write(self, arriving: _UploadBody, file: SpooledFile) -> None:
        async for block in arriving.blocks():
            await self._executors.write(self._write_block, file, block)
        await self._executors.write(file.close)

    def _write_block(self, file: SpooledFile, block: bytes) -> None:
        self._admission.space(len(block))
        file.write(block)


class _UploadBody:
    """The body of one request, read in time and up to its limit."""

    def __init__(self, request: Request, source: str, number: int, limits: HttpLimits) -> None:
        self._request = request
        self._source = source
        self._number = number
        self._limits = limits
        self._pieces = request.stream()
        self._waited = 0.0
        """Seconds for the client alone, without those that our own disk took."""

    @property
    def announced(self) -> int | None:
        """The bytes that its header announces; None if it announces none."""
        text = self._request.headers.get("content-length", "")
        return int(text) if text.isdigit() else None

    async def refuse_announced(self) -> None:
        """Refuse what says beforehand that it is too large."""
        if (self.announced or 0) > self._limits.chunk_bytes:
            raise await self._too_large()

    async def blocks(self) -> AsyncIterator[bytes]:
        """The body in blocks that are worth writing; raises what keeps it from being whole."""
        block, length = bytearray(), 0
        while piece := await self._next():
            length += len(piece)
            if length > self._limits.chunk_bytes:
                raise await self._too_large()
            self._refuse_slow(length)
            block += piece
            if len(block) >= BLOCK:
                yield bytes(block)
                block.clear()
        yield bytes(block)

    def _refuse_slow(self, length: int) -> None:
        """One that never stops and hardly goes on would keep its place for days."""
        least = self._limits.least_rate
        if self._waited > self._limits.patience and length < least * self._waited:
            raise UploadTooSlow(self._source, self._number, least)

    async def _next(self) -> bytes:
        """The next piece; empty at the end."""
        began_at = monotonic()
        try:
            async with asyncio.timeout(self._limits.gap):
                async for piece in self._pieces:
                    if piece:
                        return piece
        except TimeoutError:
            raise UploadStalled(self._source, self._number, self._limits.gap) from None
        except ClientDisconnect:
            raise UploadInterrupted(self._source, self._number) from None
        finally:
            self._waited += monotonic() - began_at
        return b""

    async def _too_large(self) -> ChunkTooLarge:
        if "expect" not in self._request.headers:  # who asked first is not sending yet
            await self._drain()
        return ChunkTooLarge(self._source, self._number, self._limits.chunk_bytes)

    async def _drain(self) -> None:
        """Read a little more, for a moment."""
        drained = 0
        with suppress(UploadInterrupted, UploadStalled, TimeoutError):
            async with asyncio.timeout(DRAINING):
                while drained < DRAINED and (piece := await self._next()):
                    drained += len(piece)
