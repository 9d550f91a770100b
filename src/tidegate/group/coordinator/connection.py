"""One non-blocking connection of a coordinator, with a backlog of unsent bytes."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from time import monotonic

from tidegate.group.coordinator.round import Identity
from tidegate.group.protocol.authentication import challenge
from tidegate.group.protocol.framing import READ_SIZE, Frames
from tidegate.group.protocol.wire import ChannelKind, Frame, Hello


class Connection:
    """A non-blocking socket and the bytes that could not be written yet."""

    def __init__(self, sock: socket.socket, peer: str) -> None:
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = sock
        self.peer = peer
        self.host = peer.rpartition(":")[0]
        """The remote address without the port."""
        self.opened_at = monotonic()
        self.challenge = challenge()
        self.frames = Frames(only=Hello)
        self.identity: Identity | None = None
        self.channel = ChannelKind.CONTROL
        self.backlog = bytearray()
        self.is_broken = False
        self._is_write_closed = False
        """Whether writing has failed; received bytes can still be read."""

    def fileno(self) -> int:
        """For a selector."""
        return self._socket.fileno()

    def admit(self, identity: Identity, channel: ChannelKind) -> None:
        """The peer has authenticated: accept all frames from it."""
        self.identity, self.channel, self.frames.only = identity, channel, None

    def read(self) -> Iterator[Frame]:
        """The frames received so far; sets `is_broken` at the end of the stream."""
        try:
            data = self._socket.recv(READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            yield from self.frames.feed(data)
        else:
            self.is_broken = True

    def write(self, frame: Frame) -> None:
        """Send what the socket accepts now and keep the rest in the backlog."""
        data = frame.pack()
        if self.backlog:
            self.backlog += data
            return
        sent = self._send(data)
        if sent < len(data):
            self.backlog += data[sent:]

    def flush(self) -> None:
        """Send more of the backlog."""
        del self.backlog[: self._send(self.backlog)]

    def close(self) -> None:
        """Close the socket; the backlog is lost."""
        self.is_broken = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        self._socket.close()

    def _send(self, data: bytes | bytearray) -> int:
        if self.is_broken or self._is_write_closed:
            return len(data)
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            self._is_write_closed = True
            return len(data)
