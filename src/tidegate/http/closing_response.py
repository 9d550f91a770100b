"""Streaming responses that own resources until they are sent or the client disconnects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import StreamingResponse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from contextlib import ExitStack

    from starlette.types import Receive, Scope, Send


class ClosingResponse(StreamingResponse):
    """A stream that releases its resources at its end.

    The iterator cannot release them itself: a client may disconnect before the first piece, and an
    iterator that was never started runs no `finally`.
    """

    def __init__(
        self,
        pieces: AsyncIterator[bytes],
        resources: ExitStack,
        media_type: str,
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(pieces, media_type=media_type, headers=headers)
        self._resources = resources

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._resources:
            await super().__call__(scope, receive, send)
