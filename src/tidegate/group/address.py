"""Where a coordinator listens: `tcp://HOST:PORT` or `unix:///PATH`."""

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
"""Connections that the system keeps until they are accepted; it may allow fewer."""


@dataclass(frozen=True, slots=True)
class Address:
    """A place to listen at or to connect to; port 0 lets the system choose one."""

    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """From how users write it.

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
        """A listening socket. A Unix socket that nobody listens at any more is taken over."""
        if not self.path:
            family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
            return socket.create_server((self.host, self.port), family=family, backlog=BACKLOG)
        self._take_over()
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
        """A connection to whoever listens there."""
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
        """Where a listener of this address is reached, its chosen port included."""
        return self if self.path else Address(self.host, listener.getsockname()[1])

    def clear(self) -> None:
        """Remove what listening has left behind."""
        if self.path:
            with suppress(FileNotFoundError):
                Path(self.path).unlink()

    def _take_over(self) -> None:
        with suppress(FileNotFoundError):
            if not stat.S_ISSOCK(Path(self.path).stat().st_mode):
                return  # binding there will say what is wrong
            try:
                self.connect(1.0).close()
            except ConnectionRefusedError:
                Path(self.path).unlink()
            except OSError:
                return  # somebody listens there who is too busy
