"""The address of a coordinator: `tcp://HOST:PORT` or `unix:///PATH`."""

from __future__ import annotations

import socket
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from tidegate.errors import InvalidAddress

BACKLOG = 4096
"""Length of the accept queue; the system may allow fewer."""


@dataclass(frozen=True, slots=True)
class Address:
    """An address to listen on or connect to; with port 0 the system chooses one."""

    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an address URL; raises `InvalidAddress`.

        >>> Address.parse("tcp://127.0.0.1:7001").port
        7001
        """
        parts = urlsplit(text)
        try:
            port = parts.port
        except ValueError:
            raise InvalidAddress(text) from None
        if parts.scheme == "tcp" and parts.hostname and port is not None and not parts.path:
            return cls(host=parts.hostname, port=port)
        if parts.scheme == "unix" and parts.path and not parts.netloc:
            return cls(path=parts.path)
        raise InvalidAddress(text)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"unix://{self.path}" if self.path else f"tcp://{host}:{self.port}"

    def listen(self) -> socket.socket:
        """Open a listening socket. A stale Unix socket, without a listener, is replaced."""
        if not self.path:
            family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
            return socket.create_server((self.host, self.port), family=family, backlog=BACKLOG)
        self._remove_stale_socket()
        listener = socket.socket(socket.AF_UNIX)
        try:
            listener.bind(self.path)
            Path(self.path).chmod(0o600)
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
        return listener

    def connect(self, timeout: float) -> socket.socket:
        """Connect to the listener at this address."""
        if not self.path:
            connection = socket.create_connection((self.host, self.port), timeout)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(timeout)
            connection.connect(self.path)
        except OSError:
            connection.close()
            raise
        return connection

    def of(self, listener: socket.socket) -> Address:
        """The address of a listener, with the port that the system chose."""
        return self if self.path else Address(self.host, listener.getsockname()[1])

    def clear(self) -> None:
        """Remove the Unix socket file."""
        if self.path:
            with suppress(FileNotFoundError):
                Path(self.path).unlink()

    def _remove_stale_socket(self) -> None:
        with suppress(FileNotFoundError):
            if not stat.S_ISSOCK(Path(self.path).stat().st_mode):
                return  # bind reports the error
            try:
                self.connect(1.0).close()
            except ConnectionRefusedError:
                Path(self.path).unlink()
            except OSError:
                return  # a listener exists and its backlog is full
