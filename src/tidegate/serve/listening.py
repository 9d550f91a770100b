"""Listening: the HTTP interface at an address, beside a service, until the end of a block."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from threading import Thread
from typing import TYPE_CHECKING

import uvicorn

from tidegate.errors import InvalidListen, UnsafeListen
from tidegate.serve.app import http_app
from tidegate.serve.gate import Gate
from tidegate.serve.spool import spooling
from tidegate.serve.threads import Limits, Threads

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from tidegate.run.deployment import Deployment
    from tidegate.run.service import Front
    from tidegate.serve.access import Tokens

log = logging.getLogger(__name__)

ADDRESS = "127.0.0.1:8420"
LAST_PORT = 65_535
GRACE = 10
"""Seconds for which requests at work may go on when the server stops."""
MARGIN = 10
"""Seconds more for the server itself to end."""


@dataclass(frozen=True, slots=True)
class Listening:
    """Where the interface is."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """What clients give as --server."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


@contextmanager
def serving_http(
    service: Front,
    place: Deployment,
    address: str = ADDRESS,
    tokens: Tokens | None = None,
    limits: Limits | None = None,
) -> Iterator[Listening]:
    """Answer at `HOST:PORT` until the end of the block; port 0 takes any that is free.

    Without tokens only this machine may ask, as one client: `UnsafeListen` refuses any other
    address. Raises `InvalidListen`.
    """
    limits = limits or Limits()
    listener = _listener(address, is_open=tokens is None)
    host, port = listener.getsockname()[:2]
    with listener, spooling(place.root) as spool, Threads(limits) as threads:
        gate = Gate(tokens)
        app = http_app(service, place, gate, spool=spool, threads=threads, limits=limits)
        server = _server(app, limits)
        thread = Thread(target=server.run, args=([listener],), name="tidegate-http", daemon=True)
        thread.start()
        try:
            yield Listening(host, port)
        finally:
            threads.is_closing = True  # those who follow a run let go
            server.should_exit = True
            thread.join(GRACE + MARGIN)
            if thread.is_alive():
                log.warning("requests at %s:%s are still at work; they are left behind", host, port)


def refuse_unsafe(address: str, tokens: Tokens | None) -> None:
    """Raise what `serving_http` would, before anything is started for it."""
    _listener(address, is_open=tokens is None).close()


def _server(app: Starlette, limits: Limits) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        lifespan="off",
        ws="none",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE,
        limit_concurrency=limits.connections,
    )
    return uvicorn.Server(config)


def _listener(address: str, *, is_open: bool) -> socket.socket:
    host, port = _parted(address)
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        if is_open and not ip_address(where[0]).is_loopback:
            raise UnsafeListen(address)
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise InvalidListen(address, error.strerror or str(error)) from error


def _parted(address: str) -> tuple[str, int]:
    """Host and port.

    >>> _parted("[::1]:8420")
    ('::1', 8420)
    """
    host, _, port = address.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and int(port) <= LAST_PORT):
        raise InvalidListen(address, "it is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)
