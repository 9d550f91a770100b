"""The wire protocol between a member and its coordinator: fixed-layout frames, little-endian.

    frame    version u8, kind u8, 0 u16, length of the body u32, body

Each frame type is a frozen value whose fields are packed in the order of their declaration; only
messages end in a variable number of bytes. `unpack` returns exactly what `pack` was given or raises
`MalformedFrame`: unknown version, kind, flag, state or reason, wrong body length, invalid text.
The body length is bounded per kind, so a peer cannot make the other side buffer gigabytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Any, ClassVar, Self

from tidegate.errors import MalformedFrame
from tidegate.group.protocol.fields import (
    BOOL,
    BOUND,
    FLAGS,
    NAME,
    SECONDS,
    STATUS,
    TEXT,
    U32,
    U64,
    Field,
    enum_field,
    raw,
)
from tidegate.group.status import Member, Phase, PhaseStatus, Require, Timeouts

VERSION = 1
HEADER = Struct("<BBHI")
MAX_PAYLOAD = 1 << 20
"""Bytes of one message."""
NONCE = 32
PROOF = 32
BOOT = 16


class AckType(IntEnum):
    """The acknowledgements that a coordinator requests."""

    OUTBOUND = 1
    PROCESSING = 2

    @property
    def phase(self) -> Phase:
        """The phase that needs this acknowledgement."""
        return Phase.OUTBOUND if self is AckType.OUTBOUND else Phase.PROCESSING


class ChannelKind(IntEnum):
    """The two connections of a member: acknowledgements never queue behind messages."""

    CONTROL = 1
    MESSAGES = 2


class RejectReason(IntEnum):
    """Why a connection, a member or a barrier call is rejected."""

    NOT_A_MEMBER = 1
    TWICE_IN_ONE_ROUND = 2
    DRAINING = 3
    REPLACED = 4
    SILENT = 5
    NOT_PROVEN = 6
    MALFORMED = 7
    STOPPING = 8
    TOO_MANY = 9
    NAME_TAKEN = 10
    TOO_SLOW = 11

    def __str__(self) -> str:
        return self.name.lower().replace("_", " ")


KINDS: dict[int, type[Frame]] = {}


class Frame:
    """A frame type; subclasses are frozen dataclasses with one `Field` for each field."""

    __slots__ = ()

    kind: ClassVar[int]
    layout: ClassVar[tuple[Field, ...]] = ()
    has_tail: ClassVar[bool] = False
    """Whether the last field is the rest of the body, outside the layout."""
    struct: ClassVar[Struct]
    most: ClassVar[int]
    __match_args__: ClassVar[tuple[str, ...]]
    """The field names, from the dataclass."""

    def __init__(self, *values: Any) -> None:
        raise NotImplementedError

    def __init_subclass__(cls) -> None:
        cls.struct = Struct("<" + "".join(field.code for field in cls.layout))
        cls.most = cls.struct.size + (MAX_PAYLOAD if cls.has_tail else 0)
        KINDS[cls.kind] = cls

    def pack(self) -> bytes:
        """Encode the frame, header included."""
        values = self._values()
        body = self.struct.pack(*[f.put(value) for f, value in zip(self.layout, values)])  # noqa: B905  the tail has no field
        if self.has_tail:
            body += values[-1]
        return HEADER.pack(VERSION, self.kind, 0, len(body)) + body

    @classmethod
    def parse(cls, body: bytes) -> Self:
        """Decode the body of a frame of this type."""
        size = cls.struct.size
        if len(body) < size or (len(body) > size and not cls.has_tail):
            raise MalformedFrame(f"{cls.__name__} has {len(body)} bytes instead of {size}")
        parts = cls.struct.unpack_from(body)
        values = [field.take(part) for field, part in zip(cls.layout, parts, strict=True)]
        if cls.has_tail:
            values.append(body[size:])
        return cls(*values)

    def _values(self) -> list[Any]:
        return [getattr(self, name) for name in self.__match_args__]


def header(data: bytes, start: int = 0) -> tuple[type[Frame], int]:
    """Decode a frame header: the frame type and the length of its body."""
    version, kind, reserved, length = HEADER.unpack_from(data, start)
    if version != VERSION:
        raise MalformedFrame(f"protocol version {version} instead of {VERSION}")
    frame = KINDS.get(kind)
    if frame is None:
        raise MalformedFrame(f"unknown frame kind {kind}")
    if reserved:
        raise MalformedFrame("reserved header bits are set")
    if length > frame.most:
        raise MalformedFrame(
            f"{frame.__name__} has {length} bytes; at most {frame.most} are allowed"
        )
    return frame, length


def unpack(data: bytes) -> Frame:
    """Decode exactly one frame."""
    if len(data) < HEADER.size:
        raise MalformedFrame(f"{len(data)} bytes are too short for a header")
    kind, length = header(data)
    if len(data) != HEADER.size + length:
        raise MalformedFrame(f"{len(data)} bytes instead of {HEADER.size + length}")
    return kind.parse(data[HEADER.size :])


# --- barriers --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BarrierRequest(Frame):
    """A caller arrives at a barrier."""

    kind = 16
    layout = (U64, NAME, FLAGS, BOUND, BOUND, BOUND)

    call: int
    barrier: str
    require: Require
    rendezvous: float | None = None
    outbound: float | None = None
    processing: float | None = None


@dataclass(frozen=True, slots=True)
class AckRequest(Frame):
    """Requests an acknowledgement once the member has reached `target` in its inbound messages."""

    kind = 17
    layout = (U64, U64, U32, enum_field(AckType), U64, U64, SECONDS)

    sequence: int
    """The leading position of the messages to the member, when this is sent."""
    round: int
    generation: int
    ack: AckType
    target: int
    call: int
    """The member's call in this round."""
    within: float
    """Seconds that the phase may take: the call may have to wait that long for other callers."""


@dataclass(frozen=True, slots=True)
class AckResponse(Frame):
    """The member confirms, or declines once."""

    kind = 18
    layout = (U64, U64, U32, enum_field(AckType), U64, BOOL)

    sequence: int
    round: int
    generation: int
    ack: AckType
    observed: int
    success: bool


@dataclass(frozen=True, slots=True)
class BarrierCompletion(Frame):
    """The outcome of a round for one of its callers."""

    kind = 19
    layout = (U64, U64, FLAGS, STATUS, STATUS, STATUS, STATUS)

    call: int
    sequence: int
    require: Require
    rendezvous: PhaseStatus
    inbound: PhaseStatus
    outbound: PhaseStatus
    processing: PhaseStatus


@dataclass(frozen=True, slots=True)
class Refusal(Frame):
    """A call that takes part in no round, with the reason."""

    kind = 20
    layout = (U64, enum_field(RejectReason))

    call: int
    reason: RejectReason


# --- membership ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Challenge(Frame):
    """The coordinator's first frame: the nonce for the member's proof."""

    kind = 1
    layout = (raw(NONCE),)

    nonce: bytes


@dataclass(frozen=True, slots=True)
class Hello(Frame):
    """The member's identity, channel and proof; the nonce challenges the coordinator in turn."""

    kind = 2
    layout = (raw(PROOF), enum_field(ChannelKind), raw(BOOT), U32, raw(NONCE), NAME, TEXT)

    proof: bytes
    channel: ChannelKind
    boot: bytes
    pid: int
    nonce: bytes
    name: str
    host: str


@dataclass(frozen=True, slots=True)
class Welcome(Frame):
    """The channel is open: the coordinator's proof and heartbeat settings."""

    kind = 3
    layout = (raw(PROOF), SECONDS, SECONDS)

    proof: bytes
    heartbeat: float
    """Seconds between two heartbeats, in both directions."""
    silence: float
    """Seconds without one after which the other side is lost."""


@dataclass(frozen=True, slots=True)
class Configure(Frame):
    """The group's default phase timeouts, from the next round on."""

    kind = 4
    layout = (SECONDS, SECONDS, SECONDS, SECONDS)

    rendezvous: float
    inbound: float
    outbound: float
    processing: float

    @classmethod
    def to(cls, timeouts: Timeouts) -> Self:
        """From the value."""
        return cls(timeouts.rendezvous, timeouts.inbound, timeouts.outbound, timeouts.processing)

    @property
    def timeouts(self) -> Timeouts:
        """As a value."""
        return Timeouts(self.rendezvous, self.inbound, self.outbound, self.processing)


@dataclass(frozen=True, slots=True)
class Heartbeat(Frame):
    """The sender is alive."""

    kind = 5


@dataclass(frozen=True, slots=True)
class Drain(Frame):
    """The member joins no further round and finishes its open ones."""

    kind = 6


@dataclass(frozen=True, slots=True)
class Leave(Frame):
    """The member leaves on purpose."""

    kind = 7


@dataclass(frozen=True, slots=True)
class Goodbye(Frame):
    """The coordinator closes this connection, with the reason."""

    kind = 8
    layout = (enum_field(RejectReason),)

    reason: RejectReason


@dataclass(frozen=True, slots=True)
class MemberInfo(Frame):
    """A member as the coordinator knows it; `is_present` is false once it has left or was lost."""

    kind = 9
    layout = (NAME, U64, raw(BOOT), TEXT, U32, BOOL, TEXT, SECONDS, BOOL)

    name: str
    instance: int
    boot: bytes
    host: str
    pid: int
    is_draining: bool
    last_phase: str
    silent: float
    is_present: bool

    @classmethod
    def of(cls, member: Member, *, is_present: bool) -> Self:
        """From the value."""
        identity = (member.name, member.instance, member.boot, member.host, member.pid)
        state = (member.is_draining, member.last_phase, member.silent)
        return cls(*identity, *state, is_present)

    @property
    def member(self) -> Member:
        """As a value."""
        state = (self.is_draining, self.last_phase, self.silent)
        return Member(self.name, self.instance, self.boot, self.host, self.pid, *state)


# --- messages --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Posted(Frame):
    """A message from a member to one instance or, with `NO_MEMBER`, to all others."""

    kind = 32
    layout = (U64, U64, NAME)
    has_tail = True

    sent: int
    """Its position among the sender's messages, from 1."""
    to: int
    topic: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Delivered(Frame):
    """A message delivered to a member."""

    kind = 33
    layout = (U64, NAME, U64, NAME)
    has_tail = True

    sequence: int
    """Its position among the messages to the member, from 1 without gaps."""
    sender: str
    sent: int
    topic: str
    payload: bytes
