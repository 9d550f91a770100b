"""One connection of a coordinator: reads what is there, writes what the other side takes."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from time import monotonic

from tidegate.group.authentication import challenge
from tidegate.group.framing import READ_SIZE, Frames
from tidegate.group.round import Identity
from tidegate.group.wire import ChannelKind, Frame, Hello


class Connection:
    """A socket that never blocks, with what could not be written yet."""

    def __init__(self, sock: socket.socket, peer: str) -> None:
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = sock
        self.peer = peer
        self.host = peer.rpartition(":")[0]
        """The address it comes from, without the port."""
        self.opened_at = monotonic()
        self.challenge = challenge()
        self.frames = Frames(only=Hello)
        self.who: Identity | None = None
        self.channel = ChannelKind.CONTROL
        self.backlog = bytearray()
        self.is_broken = False
        self._is_deaf = False
        """Whether the other side takes nothing any more; what it has said can still be read."""

    def fileno(self) -> int:
        """For a selector."""
        return self._socket.fileno()

    def admit(self, who: Identity, channel: ChannelKind) -> None:
        """Its owner has proven to know the secret."""
        self.who, self.channel, self.frames.only = who, channel, None

    def read(self) -> Iterator[Frame]:
        """The frames that are there; `is_broken` when there will be no more."""
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
        """Send what the other side takes now and keep the rest."""
        data = frame.pack()
        if self.backlog:
            self.backlog += data
            return
        taken = self._send(data)
        if taken < len(data):
            self.backlog += data[taken:]

    def flush(self) -> None:
        """Send more of what was kept."""
        del self.backlog[: self._send(self.backlog)]

    def close(self) -> None:
        """Close the socket; what was not taken is lost."""
        self.is_broken = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        self._socket.close()

    def _send(self, data: bytes | bytearray) -> int:
        if self.is_broken or self._is_deaf:
            return len(data)
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            self._is_deaf = True
            return len(data)
