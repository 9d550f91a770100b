"""What a barrier between processes may promise, and the words for what came of it.

A caller declares what it needs (`Require`) and gets one `Completion`, with a status for every
phase. A phase's state only escalates: satisfied, downgraded, failed. What nobody asked for is
reported as not requested, never as satisfied.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import STRICT, IntEnum, IntFlag
from types import MappingProxyType

from tidegate.errors import BarrierFailed, UnboundedWait

NOBODY = 0
"""The instance id that belongs to no member."""
NO_SEQUENCE = 2**64 - 1
"""A position in no stream."""


class Require(IntFlag, boundary=STRICT):
    """The guarantees that one caller of a barrier needs, beyond meeting the others."""

    NOTHING = 0
    INBOUND = 1
    """I have received everything that was sent to me before the barrier."""
    OUTBOUND = 2
    """Every member has received everything that I sent before the barrier."""
    PROCESSING = 4
    """Every member has finished its handlers of what it received before the barrier."""


INBOUND, OUTBOUND, PROCESSING = Require.INBOUND, Require.OUTBOUND, Require.PROCESSING


class Phase(IntEnum):
    """The parts of a barrier that succeed or fail on their own."""

    RENDEZVOUS = 0
    INBOUND = 1
    OUTBOUND = 2
    PROCESSING = 3

    def is_for(self, require: int) -> bool:
        """Whether a caller with these requirements is told of this phase; all meet."""
        return not self or bool(require & _BITS[self])

    def __str__(self) -> str:
        return self.name.lower()


_BITS = (0, 1, 2, 4)
"""By phase, the requirement; plain numbers, for flags are slow to combine."""
PHASES = tuple(Phase)


class State(IntEnum):
    """How a phase ended, from good to bad; a later verdict may only be worse."""

    NOT_REQUESTED = 0
    SATISFIED = 1
    DOWNGRADED = 2
    FAILED = 3

    def __str__(self) -> str:
        return self.name.lower().replace("_", " ")


class Failure(IntEnum):
    """Why a phase is not satisfied."""

    NONE = 0
    TIMEOUT = 1
    PEER_DRAINING = 2
    PEER_LOST = 3
    COORDINATOR_STOP = 4

    def __str__(self) -> str:
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True, slots=True)
class PhaseStatus:
    """The outcome of one phase; `sequence` is a position in a message stream of the caller.

    For the rendezvous and inbound it is the caller's watermark in what is sent to it, for
    outbound the last message it had sent itself, for processing what its handlers had finished.
    """

    state: State = State.NOT_REQUESTED
    failure: Failure = Failure.NONE
    offender: int = NOBODY
    sequence: int = NO_SEQUENCE

    @property
    def is_good(self) -> bool:
        """Whether the caller got what it asked for, which may have been nothing."""
        return self.state <= State.SATISFIED

    def worse(self, other: PhaseStatus) -> PhaseStatus:
        """The worse of two; the first that was as bad is kept, for it names the first cause.

        >>> lost = PhaseStatus(State.FAILED, Failure.PEER_LOST, offender=7)
        >>> lost.worse(PhaseStatus(State.SATISFIED)) is lost
        True
        """
        return other if other.state > self.state else self


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds that each phase of a barrier may take, on the monotonic clock.

    `inbound` bounds the caller's own wait for messages that are on their way to it.
    """

    rendezvous: float = 30.0
    inbound: float = 30.0
    outbound: float = 30.0
    processing: float = 60.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            seconds = getattr(self, name)
            if not (math.isfinite(seconds) and seconds >= 0):
                raise UnboundedWait(name, seconds)

    @classmethod
    def all(cls, seconds: float) -> Timeouts:
        """The same for every phase."""
        return cls(seconds, seconds, seconds, seconds)

    def of(self, phase: Phase) -> float:
        """Seconds for one phase."""
        return (self.rendezvous, self.inbound, self.outbound, self.processing)[phase]


@dataclass(frozen=True, slots=True)
class Member:
    """A process of the group, as its coordinator last saw it.

    The instance is who it is (its name), the boot which of its lives: a process that is started
    again is a new member.
    """

    name: str
    instance: int
    boot: bytes
    host: str
    pid: int
    is_draining: bool = False
    last_phase: str = "has joined"
    silent: float = 0.0
    """Seconds since its last heartbeat, when this was written."""

    def __str__(self) -> str:
        """For a sentence about who holds something up.

        >>> print(Member("joiner", 7, bytes(16), "north", 41, last_phase="joined", silent=0.3))
        joiner (pid 41 on north; joined, last heard of 0.3 s before)
        """
        return (
            f"{self.name} (pid {self.pid} on {self.host}; {self.last_phase},"
            f" last heard of {self.silent:.1f} s before)"
        )


@dataclass(frozen=True, slots=True)
class Completion:
    """What one caller of a barrier got."""

    barrier: str
    sequence: int
    """The leading position of what was sent to the caller when this was written."""
    require: Require
    rendezvous: PhaseStatus
    inbound: PhaseStatus = PhaseStatus()
    outbound: PhaseStatus = PhaseStatus()
    processing: PhaseStatus = PhaseStatus()
    offenders: Mapping[int, Member] = field(default_factory=lambda: MappingProxyType({}))
    """Those whom the phases name, by their instance."""

    def __getitem__(self, phase: Phase) -> PhaseStatus:
        return (self.rendezvous, self.inbound, self.outbound, self.processing)[phase]

    @property
    def is_satisfied(self) -> bool:
        """Whether the caller got everything it asked for."""
        phases = (self.rendezvous, self.inbound, self.outbound, self.processing)
        return all(phase.is_good for phase in phases)

    def raise_for_status(self) -> Completion:
        """Raise `BarrierFailed` unless everything asked for was given; else this completion."""
        if not self.is_satisfied:
            raise BarrierFailed(self.barrier, str(self), self)
        return self

    def __str__(self) -> str:
        if self.is_satisfied:
            return f"barrier {self.barrier!r} is satisfied: {self._asked_for()}"
        bad: dict[str, list[str]] = {}
        for phase in Phase:
            if not self[phase].is_good:
                bad.setdefault(self._complaint(self[phase]), []).append(str(phase))
        told = "; ".join(f"{' and '.join(phases)} {why}" for why, phases in bad.items())
        return f"barrier {self.barrier!r} is not satisfied: {told}"

    def _asked_for(self) -> str:
        return ", ".join(str(phase) for phase in Phase if self[phase].state is State.SATISFIED)

    def _complaint(self, status: PhaseStatus) -> str:
        who = self.offenders.get(status.offender)
        named = f" by {who}" if who else f" by member {status.offender:x}" * bool(status.offender)
        return f"{status.state} ({status.failure}{named})"
