"""Answers that hold something until they are sent, or until nobody takes them any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import StreamingResponse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from contextlib import ExitStack

    from starlette.types import Receive, Scope, Send


class ClosingResponse(StreamingResponse):
    """A stream that lets go of what it holds at its end.

    The pieces cannot do so by themselves: what was never begun has no end, and a client may be gone
    before the first piece.
    """

    def __init__(
        self,
        pieces: AsyncIterator[bytes],
        held: ExitStack,
        media_type: str,
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(pieces, media_type=media_type, headers=headers)
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._held:
            await super().__call__(scope, receive, send)
