"""Connections with limits: how many are open, and how long each may keep the server waiting.

    head    an idle connection has to send a whole request head in time
    send    the client has to read the response, about a megabyte at a time, in time

A connection that does not is closed. When there are too many, the longest idle one is closed; while
all have running requests, new ones get 503.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from tidegate.errors import ServerFull
from tidegate.http.limits.client_requests import HEALTH
from tidegate.http.responses import error_response
from tidegate.http.server.connection_table import ConnectionTable, Rejected

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send
    from uvicorn.protocols.http.h11_impl import RequestResponseCycle

    from tidegate.http.limits.limits import HttpLimits

log = logging.getLogger(__name__)

SURPLUS = 32
"""Rejected connections that get a response at the same time; above it the oldest is closed."""


class Connections:
    """The open connections of one server."""

    def __init__(self, limits: HttpLimits) -> None:
        self.limits = limits
        self.table = ConnectionTable["BoundedProtocol"](
            limits.connections, limits.connections_per_address
        )
        self.rejected: dict[BoundedProtocol, None] = {}
        """Rejected connections, the oldest first."""


class Deadline:
    """Runs an action after some seconds, unless it is cleared before."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        """Whether an action is scheduled, or has run and was not cleared."""
        return self._timer is not None

    def set(self, seconds: float, action: Callable[[], None]) -> None:
        """Schedule an action, in place of an earlier one."""
        self.clear()
        self._timer = self._loop.call_later(seconds, action)

    def clear(self) -> None:
        """Cancel the action."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 on one connection, within the limits."""

    def __init__(self, *args: Any, connections: Connections, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._connections = connections
        self._limits = connections.limits
        self._head = Deadline(self.loop)
        self._send = Deadline(self.loop)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit the connection, and close another one for it if there are too many."""
        super().connection_made(transport)
        self._await_head()
        admitted = self._connections.table.admit(self, self.client[0] if self.client else "")
        if isinstance(admitted, Rejected):
            self._reject(admitted.most)
        elif admitted.instead_of is not None:
            log.warning("too many connections; closing the longest idle one")
            admitted.instead_of.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the table."""
        self._connections.table.remove(self)
        self._connections.rejected.pop(self, None)
        self._head.clear()
        self._send.clear()
        super().connection_lost(exc)

    # ── heads ──

    def handle_events(self) -> None:
        """Check whether a whole request head was received."""
        super().handle_events()
        self._update_head_deadline()

    def on_response_complete(self) -> None:
        """Wait for the next request, which may have been received already."""
        super().on_response_complete()
        self._update_head_deadline()

    def _update_head_deadline(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle  # none before the first request
        if cycle is not None and not cycle.response_complete:
            self._head.clear()
            self._connections.table.work(self)
        elif not self._head.is_set:
            self._await_head()
            self._connections.table.wait(self)

    def _await_head(self) -> None:
        """While a response is being sent, the time for sending it is added."""
        is_sending = self.transport.get_write_buffer_size() > 0
        seconds = self._limits.head + (self._limits.send if is_sending else 0.0)
        self._head.set(seconds, self.transport.abort)

    # ── sends ──

    def pause_writing(self) -> None:
        """The client reads slower than the server writes."""
        super().pause_writing()
        self._send.set(self._limits.send, self._disconnect_slow)

    def resume_writing(self) -> None:
        """The client has read most of the written bytes."""
        super().resume_writing()
        self._send.clear()

    def _disconnect_slow(self) -> None:
        log.warning("disconnecting a client that does not read its response")
        self.transport.abort()

    # ── too many ──

    def _reject(self, most: int) -> None:
        rejected = self._connections.rejected
        log.warning("all %d connections have running requests; rejecting another one", most)
        if len(rejected) >= SURPLUS:
            next(iter(rejected)).transport.abort()
        rejected[self] = None
        self.app = self._rejecting_app(self.app, most)

    @staticmethod
    def _rejecting_app(app: Any, most: int) -> Any:
        async def reject(scope: Scope, receive: Receive, send: Send) -> None:
            response = error_response(ServerFull(most))
            response.headers["connection"] = "close"
            is_health = scope["path"] == HEALTH  # a busy server is healthy
            await (app if is_health else response)(scope, receive, send)

        return reject
