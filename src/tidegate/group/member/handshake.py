"""Opens the channels of a process to its coordinator; both sides prove knowledge of the secret."""

from __future__ import annotations

import hmac
import os
import socket
from dataclasses import dataclass
from time import monotonic
from typing import NoReturn

from tidegate.errors import CoordinatorUnreachable, MalformedFrame, MemberReplaced, NotAdmitted
from tidegate.group.address import Address
from tidegate.group.protocol.authentication import coordinator_proof, prove
from tidegate.group.protocol.framing import READ_SIZE, Frames
from tidegate.group.protocol.wire import (
    NONCE,
    PROOF,
    Challenge,
    ChannelKind,
    Frame,
    Goodbye,
    Hello,
    RejectReason,
    Welcome,
)

REASON_TEXTS = {
    RejectReason.NOT_PROVEN: "its secret is not the group's",
    RejectReason.NAME_TAKEN: "its name has the same instance id as another member; choose another",
    RejectReason.TOO_MANY: "too many unauthenticated connections",
    RejectReason.MALFORMED: "the coordinator uses another protocol version",
    RejectReason.STOPPING: "the coordinator is stopping",
}


@dataclass(frozen=True, slots=True)
class Applicant:
    """A process that requests to join."""

    name: str
    boot: bytes
    pid: int
    host: str
    secret: bytes
    address: Address


@dataclass(frozen=True, slots=True)
class OpenChannel:
    """An authenticated connection, and frames that arrived with the welcome."""

    socket: socket.socket
    frames: Frames
    welcome: Welcome
    early: tuple[Frame, ...]


def open_channel(applicant: Applicant, channel: ChannelKind, timeout: float) -> OpenChannel:
    """Connect and authenticate: raises `CoordinatorUnreachable` or `NotAdmitted`."""
    try:
        connection = applicant.address.connect(timeout)
    except OSError as error:
        raise CoordinatorUnreachable(str(applicant.address), str(error)) from error
    try:
        return _authenticate(applicant, channel, connection, monotonic() + timeout)
    except (OSError, EOFError) as error:
        connection.close()
        raise CoordinatorUnreachable(str(applicant.address), str(error)) from error
    except MalformedFrame as malformed:
        connection.close()
        raise NotAdmitted(applicant.name, str(applicant.address), malformed.reason) from malformed
    except BaseException:
        connection.close()
        raise


def _authenticate(
    applicant: Applicant, channel: ChannelKind, connection: socket.socket, until: float
) -> OpenChannel:
    frames = Frames()
    challenge, *_ = _next_frames(connection, frames, until)
    if not isinstance(challenge, Challenge):
        raise MalformedFrame(f"{type(challenge).__name__} instead of a challenge")
    nonce = os.urandom(NONCE)
    boot, pid, name, host = applicant.boot, applicant.pid, applicant.name, applicant.host
    hello = Hello(bytes(PROOF), channel, boot, pid, nonce, name, host)
    hello = prove(applicant.secret, challenge, hello)
    connection.sendall(hello.pack())
    answer, *early = _next_frames(connection, frames, until)
    if isinstance(answer, Goodbye):
        _raise_rejected(applicant, answer.reason)
    if not isinstance(answer, Welcome):
        raise MalformedFrame(f"{type(answer).__name__} instead of a welcome")
    if not hmac.compare_digest(answer.proof, coordinator_proof(applicant.secret, challenge, hello)):
        reason = "the listening process does not know the secret"
        raise NotAdmitted(name, str(applicant.address), reason)
    return OpenChannel(connection, frames, answer, tuple(early))


def _raise_rejected(applicant: Applicant, reason: RejectReason) -> NoReturn:
    if reason is RejectReason.REPLACED:
        raise MemberReplaced(applicant.name)
    if reason is RejectReason.NOT_A_MEMBER:  # restarted between the two connections
        raise CoordinatorUnreachable(str(applicant.address), "it was restarted during admission")
    raise NotAdmitted(applicant.name, str(applicant.address), REASON_TEXTS.get(reason, str(reason)))


def _next_frames(connection: socket.socket, frames: Frames, until: float) -> list[Frame]:
    """Read until at least one frame has arrived."""
    received: list[Frame] = []
    while not received:
        connection.settimeout(max(0.001, until - monotonic()))
        data = connection.recv(READ_SIZE)
        if not data:
            raise EOFError("the connection was closed during admission")
        received += frames.feed(data)
    return received
