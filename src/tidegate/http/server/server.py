"""The HTTP server: the interface of a service at an address, until the end of a block."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from math import ceil
from threading import Thread
from typing import TYPE_CHECKING, cast

import uvicorn

from tidegate.errors import InvalidListen, UnsafeListen
from tidegate.http.app import http_app
from tidegate.http.auth.authenticator import Authenticator
from tidegate.http.limits.executors import Executors
from tidegate.http.limits.limits import HttpLimits
from tidegate.http.server.connections import BoundedProtocol, Connections
from tidegate.http.server.starting import StartingApp
from tidegate.http.spool import open_spool

if TYPE_CHECKING:
    from asyncio import Protocol

    from tidegate.http.auth.authenticator import ClientLookup
    from tidegate.runtime.deployment import Deployment
    from tidegate.runtime.service import PipelineFrontend

log = logging.getLogger(__name__)

ADDRESS = "127.0.0.1:8420"
LAST_PORT = 65_535
BACKLOG = 128
"""Connections waiting to be accepted. asyncio also reports a lack of descriptors this often."""
MARGIN = 5.0
"""Seconds beyond the grace period for the server thread to end."""


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """The address of a server."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """The URL that clients give as --server."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


@contextmanager
def serve_http(
    service: PipelineFrontend,
    deployment: Deployment,
    address: str = ADDRESS,
    tokens: ClientLookup | None = None,
    limits: HttpLimits | None = None,
) -> Iterator[HttpAddress]:
    """Serve at `HOST:PORT` until the end of the block; port 0 is any free port.

    Without tokens only programs on this machine are served, as one client: raises `UnsafeListen`
    for any other address. Raises `InvalidListen`.
    """
    with (
        listen_http(address, tokens, limits or HttpLimits.of(deployment.settings)) as http_server,
        http_server.serve(service, deployment) as at,
    ):
        yield at


@contextmanager
def listen_http(
    address: str, tokens: ClientLookup | None, limits: HttpLimits
) -> Iterator[HttpServer]:
    """A server at `HOST:PORT` that answers `ServerStarting` until it serves a service.

    Raises the errors of `serve_http`.
    """
    with _listener(address, is_open=tokens is None) as listener:
        http_server = HttpServer(listener, Authenticator(tokens), limits)
        try:
            yield http_server
        finally:
            http_server.stop()


class HttpServer:
    """Listens at an address; answers `ServerStarting` until `serve` is called."""

    def __init__(self, listener: socket.socket, auth: Authenticator, limits: HttpLimits) -> None:
        self.at = HttpAddress(*listener.getsockname()[:2])
        self._auth = auth
        self._limits = limits
        self._app = StartingApp()
        self._server = _server(self._app, limits)
        run = Thread(target=self._server.run, args=([listener],), name="tidegate-http", daemon=True)
        self._thread = run
        run.start()

    @contextmanager
    def serve(self, service: PipelineFrontend, deployment: Deployment) -> Iterator[HttpAddress]:
        """Serve a service until the end of the block, then stop the server."""
        auth, limits = self._auth, self._limits
        with open_spool(deployment.root) as spool, Executors(limits) as executors:
            app = http_app(
                service, deployment, auth, spool=spool, executors=executors, limits=limits
            )
            self._app.app = app
            try:
                yield self.at
            finally:
                executors.is_closing = True  # streams of events end
                self.stop()

    def stop(self) -> None:
        """Accept no more requests and wait for running ones; idempotent."""
        self._server.should_exit = True
        self._thread.join(self._limits.grace + MARGIN)
        if self._thread.is_alive():
            log.warning("abandoning requests at %s that are still running", self.at.url)


def check_listen_address(address: str, tokens: ClientLookup | None) -> None:
    """Raise the errors of `serve_http` without starting a server."""
    _listener(address, is_open=tokens is None).close()


def _server(app: StartingApp, limits: HttpLimits) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        lifespan="off",
        ws="none",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # the authenticator reads the headers as sent
        timeout_graceful_shutdown=ceil(limits.grace),
        timeout_keep_alive=ceil(limits.head),
        http=cast("type[Protocol]", partial(BoundedProtocol, connections=Connections(limits))),
        backlog=BACKLOG,
    )
    return uvicorn.Server(config)


def _listener(address: str, *, is_open: bool) -> socket.socket:
    host, port = _host_and_port(address)
    try:
        family, _, _, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        if is_open and not ip_address(target[0]).is_loopback:
            raise UnsafeListen(address)
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise InvalidListen(address, error.strerror or str(error)) from error


def _host_and_port(address: str) -> tuple[str, int]:
    """Host and port.

    >>> _host_and_port("[::1]:8420")
    ('::1', 8420)
    """
    host, _, port = address.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and int(port) <= LAST_PORT):
        raise InvalidListen(address, "it is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)
