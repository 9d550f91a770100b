"""How a process opens its channels to a coordinator: both sides prove that they know the secret."""

from __future__ import annotations

import hmac
import os
import socket
from dataclasses import dataclass
from time import monotonic
from typing import NoReturn

from tidegate.errors import CoordinatorUnreachable, MalformedFrame, MemberReplaced, NotAdmitted
from tidegate.group.address import Address
from tidegate.group.authentication import coordinator_proof, prove
from tidegate.group.framing import READ_SIZE, Frames
from tidegate.group.wire import (
    NONCE,
    PROOF,
    Challenge,
    ChannelKind,
    Frame,
    Goodbye,
    Hello,
    Reason,
    Welcome,
)

WHY = {
    Reason.NOT_PROVEN: "it does not know the group's secret",
    Reason.NAME_TAKEN: "its name stands for the same number as another member's; choose another",
    Reason.TOO_MANY: "too many strangers ask at once",
    Reason.MALFORMED: "the other side speaks another version",
    Reason.STOPPING: "the coordinator is about to stop",
}


@dataclass(frozen=True, slots=True)
class Applicant:
    """A process that wants to be a member."""

    name: str
    boot: bytes
    pid: int
    host: str
    secret: bytes
    address: Address


@dataclass(frozen=True, slots=True)
class OpenChannel:
    """A connection whose other side has proven itself, and frames that came right behind."""

    socket: socket.socket
    frames: Frames
    welcome: Welcome
    early: tuple[Frame, ...]


def open_channel(who: Applicant, channel: ChannelKind, timeout: float) -> OpenChannel:
    """Connect and be admitted: `CoordinatorUnreachable` if nobody is there, else `NotAdmitted`."""
    try:
        connection = who.address.connect(timeout)
    except OSError as trouble:
        raise CoordinatorUnreachable(str(who.address), str(trouble)) from trouble
    try:
        return _be_admitted(who, channel, connection, monotonic() + timeout)
    except (OSError, EOFError) as trouble:
        connection.close()
        raise CoordinatorUnreachable(str(who.address), str(trouble)) from trouble
    except MalformedFrame as garbage:
        connection.close()
        raise NotAdmitted(who.name, str(who.address), garbage.reason) from garbage
    except BaseException:
        connection.close()
        raise


def _be_admitted(
    who: Applicant, channel: ChannelKind, connection: socket.socket, until: float
) -> OpenChannel:
    frames = Frames()
    asked, *_ = _next_frames(connection, frames, until)
    if not isinstance(asked, Challenge):
        raise MalformedFrame(f"{type(asked).__name__} instead of a challenge")
    nonce = os.urandom(NONCE)
    hello = Hello(bytes(PROOF), channel, who.boot, who.pid, nonce, who.name, who.host)
    hello = prove(who.secret, asked, hello)
    connection.sendall(hello.pack())
    answer, *early = _next_frames(connection, frames, until)
    if isinstance(answer, Goodbye):
        _turned_away(who, answer.reason)
    if not isinstance(answer, Welcome):
        raise MalformedFrame(f"{type(answer).__name__} instead of a welcome")
    if not hmac.compare_digest(answer.proof, coordinator_proof(who.secret, asked, hello)):
        raise NotAdmitted(who.name, str(who.address), "whoever listens does not know the secret")
    return OpenChannel(connection, frames, answer, tuple(early))


def _turned_away(who: Applicant, reason: Reason) -> NoReturn:
    if reason is Reason.REPLACED:
        raise MemberReplaced(who.name)
    if reason is Reason.NOT_A_MEMBER:  # the coordinator was started again between the two channels
        raise CoordinatorUnreachable(str(who.address), "it does not know the other connection")
    raise NotAdmitted(who.name, str(who.address), WHY.get(reason, str(reason)))


def _next_frames(connection: socket.socket, frames: Frames, until: float) -> list[Frame]:
    """At least one."""
    found: list[Frame] = []
    while not found:
        connection.settimeout(max(0.001, until - monotonic()))
        data = connection.recv(READ_SIZE)
        if not data:
            raise EOFError("the connection was closed during admission")
        found += frames.feed(data)
    return found
