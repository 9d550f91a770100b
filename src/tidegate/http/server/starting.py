"""Responses of a server while its Spark and PostgreSQL are starting.

Both take seconds to start, and minutes on a busy machine or after a crash. A client that gets
`ServerStarting` keeps trying; one that cannot connect gives up sooner.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from tidegate.errors import ServerStarting
from tidegate.http.error_mapping import error_body
from tidegate.http.responses import json_response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

RETRY_AFTER = "1"
"""Seconds after which a client may retry."""
HEALTH = "/health"


class StartingApp:
    """Answers every request with `ServerStarting` until `app` is replaced."""

    def __init__(self) -> None:
        self.app: ASGIApp = self._refuse
        """Handles requests from the next one on."""
        self._since = monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = ServerStarting(round(monotonic() - self._since, 1))
        error_response = msgspec.to_builtins(error_body(error))
        state = {"status": "starting"} if scope["path"] == HEALTH else {}
        response = json_response({**state, **error_response}, error.http_status)
        response.headers["retry-after"] = RETRY_AFTER
        await response(scope, receive, send)
