"""Downloads of results: sent piece by piece, never whole in memory, with bounded concurrency."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tidegate.errors import TooManyDownloads
from tidegate.http.closing_response import ClosingResponse
from tidegate.http.limits.concurrency import ConcurrencyLimit

if TYPE_CHECKING:
    from starlette.responses import Response

    from tidegate.http.client_api import ClientApi
    from tidegate.http.formats import ResultFormat
    from tidegate.http.limits.executors import Executors
    from tidegate.http.limits.limits import HttpLimits
    from tidegate.http.requests import CheckpointSelector
    from tidegate.http.spool import Spool


PART = 1 << 20
"""Bytes per send."""


class Downloads:
    """Sends results, a bounded number per client: each may have a copy in the spool."""

    def __init__(self, spool: Spool, executors: Executors, limits: HttpLimits) -> None:
        self._spool = spool
        self._executors = executors
        self._concurrency = ConcurrencyLimit(
            limits.downloads_per_client, TooManyDownloads, limits.downloads
        )

    async def send(
        self,
        api: ClientApi,
        run: str,
        sink: str,
        kind: ResultFormat,
        checkpoint: CheckpointSelector | None,
    ) -> Response:
        """The final result of a sink, or a checkpoint's. Errors are raised before the first byte.

        Raises `TooManyDownloads`.
        """
        client, give = api.client, self._executors.give
        with ExitStack() as resources:
            resources.enter_context(self._concurrency.acquire(client))
            folder = await give(client, resources.enter_context, self._spool.folder())
            pieces = await give(client, api.result, run, sink, kind, folder, checkpoint)
            first = await give(client, _next, pieces)
            headers = {"content-disposition": f'attachment; filename="{sink}.{kind.value}"'}
            parts = self._parts(first, pieces, client)
            return ClosingResponse(parts, resources.pop_all(), kind.media_type, headers)

    async def _parts(
        self, first: bytes | None, pieces: Iterator[bytes], client: str
    ) -> AsyncIterator[bytes]:
        piece = first
        while piece is not None:
            for part in parts_of(piece):
                yield part
            piece = await self._executors.give(client, _next, pieces)


def parts_of(piece: bytes) -> Iterator[bytes]:
    """A piece split into parts: the send timeout applies to each part, and a piece may be large.

    >>> [len(part) for part in parts_of(bytes(2 * PART + 1))]
    [1048576, 1048576, 1]
    """
    for start in range(0, len(piece), PART):
        yield piece[start : start + PART]


def _next(pieces: Iterator[bytes]) -> bytes | None:
    return next(pieces, None)
