"""The bytes between a member and its coordinator: frames of fixed layout, little-endian.

    frame    version u8, kind u8, 0 u16, length of the body u32, body

Each kind of frame is a frozen value whose fields stand in its struct in the order in which they
are declared; only messages end in bytes of any length. `unpack` gives back exactly what `pack` was
given or raises `MalformedFrame`: an unknown version, kind, flag, state or reason, a body of another
length, a text that is none. A body is bounded by its kind, so nobody can make the other side wait
for gigabytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Any, ClassVar, Self

from tidegate.errors import MalformedFrame
from tidegate.group.fields import (
    BOUND,
    FLAGS,
    NAME,
    SECONDS,
    STATUS,
    TEXT,
    TRUTH,
    U32,
    U64,
    Field,
    one_of,
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
    """What a member is asked to confirm."""

    OUTBOUND = 1
    PROCESSING = 2

    @property
    def phase(self) -> Phase:
        """The phase that waits for it."""
        return Phase.OUTBOUND if self is AckType.OUTBOUND else Phase.PROCESSING


class ChannelKind(IntEnum):
    """The two connections of a member: acknowledgements never queue behind messages."""

    CONTROL = 1
    MESSAGES = 2


class Reason(IntEnum):
    """Why somebody is turned away."""

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
    """A kind of frame; its subclasses are frozen dataclasses with one `Field` for each field."""

    __slots__ = ()

    kind: ClassVar[int]
    layout: ClassVar[tuple[Field, ...]] = ()
    has_tail: ClassVar[bool] = False
    """Whether the last field is the rest of the body, which has no place in the layout."""
    struct: ClassVar[Struct]
    most: ClassVar[int]
    __match_args__: ClassVar[tuple[str, ...]]
    """The names of the fields, as every dataclass has them."""

    def __init__(self, *values: Any) -> None:
        raise NotImplementedError

    def __init_subclass__(cls) -> None:
        cls.struct = Struct("<" + "".join(field.code for field in cls.layout))
        cls.most = cls.struct.size + (MAX_PAYLOAD if cls.has_tail else 0)
        KINDS[cls.kind] = cls

    def pack(self) -> bytes:
        """The whole frame."""
        values = self._values()
        body = self.struct.pack(*[field.put(it) for field, it in zip(self.layout, values)])  # noqa: B905  the tail has no field
        if self.has_tail:
            body += values[-1]
        return HEADER.pack(VERSION, self.kind, 0, len(body)) + body

    @classmethod
    def parse(cls, body: bytes) -> Self:
        """From the body of such a frame."""
        size = cls.struct.size
        if len(body) < size or (len(body) > size and not cls.has_tail):
            raise MalformedFrame(f"{cls.__name__} of {len(body)} bytes where {size} are right")
        parts = cls.struct.unpack_from(body)
        values = [field.take(it) for field, it in zip(cls.layout, parts, strict=True)]
        if cls.has_tail:
            values.append(body[size:])
        return cls(*values)

    def _values(self) -> list[Any]:
        return [getattr(self, name) for name in self.__match_args__]


def header(data: bytes, start: int = 0) -> tuple[type[Frame], int]:
    """The kind and the length of the body that begin there."""
    version, kind, reserved, length = HEADER.unpack_from(data, start)
    if version != VERSION:
        raise MalformedFrame(f"version {version} where {VERSION} is spoken")
    frame = KINDS.get(kind)
    if frame is None:
        raise MalformedFrame(f"a frame of unknown kind {kind}")
    if reserved:
        raise MalformedFrame("bits are set where none may be")
    if length > frame.most:
        raise MalformedFrame(f"{frame.__name__} of {length} bytes; {frame.most} are allowed")
    return frame, length


def unpack(data: bytes) -> Frame:
    """The one frame that these bytes are."""
    if len(data) < HEADER.size:
        raise MalformedFrame(f"{len(data)} bytes are no header")
    kind, length = header(data)
    if len(data) != HEADER.size + length:
        raise MalformedFrame(f"{len(data)} bytes where {HEADER.size + length} were announced")
    return kind.parse(data[HEADER.size :])


# --- barriers --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BarrierRequest(Frame):
    """A caller has arrived."""

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
    """The coordinator asks for a word when the member is at `target` in what it is sent."""

    kind = 17
    layout = (U64, U64, U32, one_of(AckType), U64, U64, SECONDS)

    sequence: int
    """The leading position of what is sent to the member, when this is."""
    round: int
    generation: int
    ack: AckType
    target: int
    call: int
    """Of the member, in this round."""
    within: float
    """Seconds that the phase may take: so long the call may have to wait, whoever asked for it."""


@dataclass(frozen=True, slots=True)
class AckResponse(Frame):
    """The member confirms, or says once that it cannot."""

    kind = 18
    layout = (U64, U64, U32, one_of(AckType), U64, TRUTH)

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
    """A call takes part in no round, and why."""

    kind = 20
    layout = (U64, one_of(Reason))

    call: int
    reason: Reason


# --- membership ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Challenge(Frame):
    """The first word of a coordinator: prove that you know the secret."""

    kind = 1
    layout = (raw(NONCE),)

    nonce: bytes


@dataclass(frozen=True, slots=True)
class Hello(Frame):
    """Who opens which channel, and the proof; the nonce challenges the coordinator in turn."""

    kind = 2
    layout = (raw(PROOF), one_of(ChannelKind), raw(BOOT), U32, raw(NONCE), NAME, TEXT)

    proof: bytes
    channel: ChannelKind
    boot: bytes
    pid: int
    nonce: bytes
    name: str
    host: str


@dataclass(frozen=True, slots=True)
class Welcome(Frame):
    """The channel is open: the coordinator's proof, and how it keeps time."""

    kind = 3
    layout = (raw(PROOF), SECONDS, SECONDS)

    proof: bytes
    heartbeat: float
    """Seconds between two heartbeats, of either side."""
    silence: float
    """Seconds without one after which the other side is lost."""


@dataclass(frozen=True, slots=True)
class Configure(Frame):
    """How long each phase of a barrier may take, for the whole group, from the next round on."""

    kind = 4
    layout = (SECONDS, SECONDS, SECONDS, SECONDS)

    rendezvous: float
    inbound: float
    outbound: float
    processing: float

    @classmethod
    def to(cls, it: Timeouts) -> Self:
        """A frame that says so."""
        return cls(it.rendezvous, it.inbound, it.outbound, it.processing)

    @property
    def timeouts(self) -> Timeouts:
        """As the value that everybody else uses."""
        return Timeouts(self.rendezvous, self.inbound, self.outbound, self.processing)


@dataclass(frozen=True, slots=True)
class Heartbeat(Frame):
    """The sender is alive."""

    kind = 5


@dataclass(frozen=True, slots=True)
class Drain(Frame):
    """The member takes part in no further round and finishes those it is in."""

    kind = 6


@dataclass(frozen=True, slots=True)
class Leave(Frame):
    """The member goes, on purpose."""

    kind = 7


@dataclass(frozen=True, slots=True)
class Goodbye(Frame):
    """The coordinator has no more words for this connection, and why."""

    kind = 8
    layout = (one_of(Reason),)

    reason: Reason


@dataclass(frozen=True, slots=True)
class About(Frame):
    """What the coordinator knows of a member; `is_here` ends when it has gone."""

    kind = 9
    layout = (NAME, U64, raw(BOOT), TEXT, U32, TRUTH, TEXT, SECONDS, TRUTH)

    name: str
    instance: int
    boot: bytes
    host: str
    pid: int
    is_draining: bool
    last_phase: str
    silent: float
    is_here: bool

    @classmethod
    def of(cls, it: Member, *, is_here: bool) -> Self:
        """A frame that says so."""
        state = (it.is_draining, it.last_phase, it.silent)
        return cls(it.name, it.instance, it.boot, it.host, it.pid, *state, is_here)

    @property
    def member(self) -> Member:
        """As the value that everybody else uses."""
        state = (self.is_draining, self.last_phase, self.silent)
        return Member(self.name, self.instance, self.boot, self.host, self.pid, *state)


# --- messages --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Posted(Frame):
    """A message from a member, to one (by its instance) or, to `NOBODY`, to all others."""

    kind = 32
    layout = (U64, U64, NAME)
    has_tail = True

    sent: int
    """Its place in what the sender has sent, from 1."""
    to: int
    topic: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Delivered(Frame):
    """A message to a member."""

    kind = 33
    layout = (U64, NAME, U64, NAME)
    has_tail = True

    sequence: int
    """Its place in what the member is sent, from 1 without gaps."""
    sender: str
    sent: int
    topic: str
    payload: bytes
