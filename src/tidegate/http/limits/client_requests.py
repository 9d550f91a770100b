"""A bound on the requests that one client has at work, streams included."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from starlette.requests import Request

from tidegate.errors import TidegateError, TooManyRequests
from tidegate.http.limits.concurrency import ConcurrencyLimit
from tidegate.http.responses import error_response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from tidegate.http.auth.authenticator import Authenticator

HEALTH = "/health"
"""Exempt: programs that watch the server ask it, whatever its clients do."""


class ClientRequests:
    """Refuses a request of a client that has too many; an unknown client is refused further on."""

    def __init__(self, app: ASGIApp, auth: Authenticator, most: int) -> None:
        self._app = app
        self._auth = auth
        self._at_work = ConcurrencyLimit(most, TooManyRequests)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        client = self._client_of(scope)
        with ExitStack() as held:
            try:
                if client is not None:
                    held.enter_context(self._at_work.acquire(client))
            except TooManyRequests as error:
                await error_response(error)(scope, receive, send)
                return
            await self._app(scope, receive, send)

    def _client_of(self, scope: Scope) -> str | None:
        if scope["type"] != "http" or scope["path"] == HEALTH:
            return None
        try:
            return self._auth.client_of(Request(scope))
        except TidegateError:
            return None
