"""Raw connections to a coordinator, over which a test sends and reads any bytes."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from tests.integration.group.processes import Cluster
from tidegate.group.address import Address
from tidegate.group.member.handshake import Applicant, open_channel
from tidegate.group.protocol.wire import BOOT, ChannelKind, Heartbeat

SIP = 1 << 16
"""Bytes that a trickling member takes at a time."""
PAUSE = 0.04
"""Seconds between two times."""


@contextmanager
def connected(address: str) -> Iterator[socket.socket]:
    connection = Address.parse(address).connect(5.0)
    with connection:
        connection.settimeout(20.0)
        yield connection


def read_to_the_end(connection: socket.socket) -> bytes:
    said = b""
    try:
        while data := connection.recv(1 << 16):
            said += data
    except ConnectionError:
        pass
    return said


@contextmanager
def admitted(group: Cluster, name: str) -> Iterator[dict[ChannelKind, socket.socket]]:
    """The connections of a member that can say whatever it wants."""
    address = Address.parse(group.address)
    applicant = Applicant(
        name, os.urandom(BOOT - 1) + b"\0", 7, "nowhere", group.secret.encode(), address
    )
    control = open_channel(applicant, ChannelKind.CONTROL, 5.0).socket
    with control, open_channel(applicant, ChannelKind.MESSAGES, 5.0).socket as messages:
        control.settimeout(20.0)
        messages.settimeout(20.0)
        yield {ChannelKind.CONTROL: control, ChannelKind.MESSAGES: messages}


@contextmanager
def trickling(channels: dict[ChannelKind, socket.socket]) -> Iterator[None]:
    """Its heart beats, and it takes some bytes of its messages now and then."""
    done = Event()
    # With a large buffer the system would tell the other side only now and then that there is room.
    channels[ChannelKind.MESSAGES].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SIP)

    def trickle() -> None:
        while not done.wait(PAUSE):
            try:
                channels[ChannelKind.CONTROL].sendall(Heartbeat().pack())
                channels[ChannelKind.MESSAGES].recv(SIP)
            except OSError:
                return

    thread = Thread(target=trickle)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
