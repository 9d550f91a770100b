"""Results on their way out, piece by piece: never a whole one in memory, and only some at once."""

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
"""Bytes that are sent at a time."""


class Downloads:
    """Sends results, a few to each client at a time: each may hold a copy in the spool."""

    def __init__(self, spool: Spool, executors: Executors, limits: HttpLimits) -> None:
        self._spool = spool
        self._executors = executors
        self._under_way = ConcurrencyLimit(
            limits.downloads_per_client, TooManyDownloads, limits.downloads
        )

    async def send(
        self,
        api: ClientApi,
        run: str,
        sink: str,
        wanted: ResultFormat,
        of: CheckpointSelector | None,
    ) -> Response:
        """The result of a sink, at its end or at a cut. What is wrong shows before the first byte.

        Raises `TooManyDownloads`.
        """
        client, give = api.client, self._executors.give
        with ExitStack() as held:
            held.enter_context(self._under_way.acquire(client))
            folder = await give(client, held.enter_context, self._spool.folder())
            pieces = await give(client, api.result, run, sink, wanted, folder, of)
            first = await give(client, _next, pieces)
            name = f'attachment; filename="{sink}.{wanted.value}"'
            headers = {"content-disposition": name}
            sent = self._sent(first, pieces, client)
            return ClosingResponse(sent, held.pop_all(), wanted.media_type, headers)

    async def _sent(
        self, first: bytes | None, pieces: Iterator[bytes], client: str
    ) -> AsyncIterator[bytes]:
        piece = first
        while piece is not None:
            for part in parts_of(piece):
                yield part
            piece = await self._executors.give(client, _next, pieces)


def parts_of(piece: bytes) -> Iterator[bytes]:
    """What is sent at a time: a client has so long to take each, and a piece may be large.

    >>> [len(part) for part in parts_of(bytes(2 * PART + 1))]
    [1048576, 1048576, 1]
    """
    for start in range(0, len(piece), PART):
        yield piece[start : start + PART]


def _next(pieces: Iterator[bytes]) -> bytes | None:
    return next(pieces, None)
