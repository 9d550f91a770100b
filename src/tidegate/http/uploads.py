"""Uploads of chunks: spooled to the deployment while they are received, whole or not at all."""

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
"""Bytes per write."""
DRAINED, DRAINING = 4 << 20, 2.0
"""Bytes of a refused chunk that are still read, and seconds: a client that is sending may not see
the response before."""


@dataclass(frozen=True, slots=True)
class Admission:
    """Checks before more bytes are accepted; each raises the error for the client."""

    quota: Callable[[str, int], None]
    """Checks the quota of a client."""
    space: Callable[[int], None]
    """Checks the free space on the disk."""


NO_CHECKS = Admission(lambda _client, _incoming: None, lambda _incoming: None)


class Uploads:
    """Receives chunks, a few of each client at a time, so that slow uploads do not block others."""

    def __init__(
        self,
        spool: Spool,
        executors: Executors,
        limits: HttpLimits,
        admission: Admission = NO_CHECKS,
    ) -> None:
        self._admission = admission
        self._spool = spool
        self._executors = executors
        self._limits = limits
        self._slots = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(limits.uploads))
        """Per client."""
        self._waiting: Counter[str] = Counter()

    @asynccontextmanager
    async def received(
        self, client: str, request: Request, source: str, number: int, ending: str
    ) -> AsyncIterator[str]:
        """A file with the whole body; removed at the end of the block."""
        body = _UploadBody(request, source, number, self._limits)
        await body.check_announced_size()
        async with self._slot(client):
            await self._admit(client, body.announced or 0)
            file = await self._executors.write(self._spool.file, ending)
            try:
                await self._write(body, file)
                if body.announced is None:  # its size was not counted before
                    await self._check_quota(client, body.length)
                yield file.path
            finally:
                file.remove()

    @asynccontextmanager
    async def _slot(self, client: str) -> AsyncIterator[None]:
        """One of the client's slots until the end of the block; raises `TooManyUploads`."""
        slot = self._slots[client]
        if slot.locked() and self._waiting[client] >= self._limits.uploads_waiting:
            raise TooManyUploads(self._limits.uploads_waiting)
        self._waiting[client] += 1
        try:
            await slot.acquire()
        finally:
            self._waiting[client] -= 1
        try:
            yield
        finally:
            slot.release()

    async def _admit(self, client: str, incoming: int) -> None:
        await self._check_quota(client, incoming)
        await self._executors.write(self._admission.space, incoming)

    async def _check_quota(self, client: str, incoming: int) -> None:
        await self._executors.call(client, self._admission.quota, client, incoming)

    async def _write(self, body: _UploadBody, file: SpooledFile) -> None:
        async for block in body.blocks():
            await self._executors.write(self._write_block, file, block)
        await self._executors.write(file.close)

    def _write_block(self, file: SpooledFile, block: bytes) -> None:
        self._admission.space(len(block))
        file.write(block)


class _UploadBody:
    """The body of one request, read within its time and size limits."""

    def __init__(self, request: Request, source: str, number: int, limits: HttpLimits) -> None:
        self._request = request
        self._source = source
        self._number = number
        self._limits = limits
        self._pieces = request.stream()
        self.length = 0
        """Bytes that have arrived."""
        self._waited = 0.0
        """Seconds spent waiting for the client, without those for the server's disk."""

    @property
    def announced(self) -> int | None:
        """Content-Length; None without that header."""
        text = self._request.headers.get("content-length", "")
        return int(text) if text.isdigit() else None

    async def check_announced_size(self) -> None:
        """Raise `ChunkTooLarge` if Content-Length exceeds the limit."""
        if (self.announced or 0) > self._limits.chunk_bytes:
            raise await self._too_large()

    async def blocks(self) -> AsyncIterator[bytes]:
        """The body in blocks of about `BLOCK` bytes; raises if it is not received completely."""
        block = bytearray()
        while piece := await self._next():
            self.length += len(piece)
            if self.length > self._limits.chunk_bytes:
                raise await self._too_large()
            self._check_rate()
            block += piece
            if len(block) >= BLOCK:
                yield bytes(block)
                block.clear()
        yield bytes(block)

    def _check_rate(self) -> None:
        """Raise for an upload so slow that it would keep its slot for hours."""
        least = self._limits.least_rate
        if self._waited > self._limits.patience and self.length < least * self._waited:
            raise UploadTooSlow(self._source, self._number, least)

    async def _next(self) -> bytes:
        """The next bytes; empty at the end."""
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
        if "expect" not in self._request.headers:  # such a client has not begun to send
            await self._drain()
        return ChunkTooLarge(self._source, self._number, self._limits.chunk_bytes)

    async def _drain(self) -> None:
        """Read and discard a bounded part of the rest."""
        drained = 0
        with suppress(UploadInterrupted, UploadStalled, TimeoutError):
            async with asyncio.timeout(DRAINING):
                while drained < DRAINED and (piece := await self._next()):
                    drained += len(piece)
