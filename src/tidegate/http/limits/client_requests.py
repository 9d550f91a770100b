"""A limit on the concurrent requests of one client, streams included."""

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
"""Exempt: supervisors have to reach it, whatever the clients do."""


class ClientRequests:
    """Middleware that raises `TooManyRequests`; an unknown client is refused by the endpoint."""

    def __init__(self, app: ASGIApp, auth: Authenticator, most: int) -> None:
        self._app = app
        self._auth = auth
        self._concurrency = ConcurrencyLimit(most, TooManyRequests)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        client = self._client_of(scope)
        with ExitStack() as resources:
            try:
                if client is not None:
                    resources.enter_context(self._concurrency.acquire(client))
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
