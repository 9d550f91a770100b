"""The guarantees of a barrier between processes, and the values that report its result.

A caller declares what it needs (`Require`) and gets one `Completion`, with a status for every
phase. A phase's state only escalates: satisfied, downgraded, failed. A phase that the caller did
not require is reported as not requested, never as satisfied.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import STRICT, IntEnum, IntFlag
from types import MappingProxyType

from tidegate.errors import BarrierFailed, UnboundedWait

NO_MEMBER = 0
"""The instance id that belongs to no member."""
NO_SEQUENCE = 2**64 - 1
"""A position in no stream."""


class Require(IntFlag, boundary=STRICT):
    """The guarantees that a caller of a barrier needs, beyond the rendezvous."""

    NOTHING = 0
    INBOUND = 1
    """The caller has received everything that was sent to it before the barrier."""
    OUTBOUND = 2
    """Every member has received everything that the caller sent before the barrier."""
    PROCESSING = 4
    """Every member has finished the handlers of all messages received before the barrier."""


INBOUND, OUTBOUND, PROCESSING = Require.INBOUND, Require.OUTBOUND, Require.PROCESSING


class Phase(IntEnum):
    """The parts of a barrier that succeed or fail independently."""

    RENDEZVOUS = 0
    INBOUND = 1
    OUTBOUND = 2
    PROCESSING = 3

    def is_for(self, require: int) -> bool:
        """Whether this phase is reported for these requirements; the rendezvous always is."""
        return not self or bool(require & _BITS[self])

    def __str__(self) -> str:
        return self.name.lower()


_BITS = (0, 1, 2, 4)
"""The requirement bit of each phase; plain numbers, because flags are slow to combine."""
PHASES = tuple(Phase)


class State(IntEnum):
    """How a phase ended, from good to bad; it only escalates."""

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
    offender: int = NO_MEMBER
    sequence: int = NO_SEQUENCE

    @property
    def is_good(self) -> bool:
        """Whether the phase is satisfied or was not requested."""
        return self.state <= State.SATISFIED

    def worse(self, other: PhaseStatus) -> PhaseStatus:
        """The worse of two; of equal states the first is kept, which names the first cause.

        >>> lost = PhaseStatus(State.FAILED, Failure.PEER_LOST, offender=7)
        >>> lost.worse(PhaseStatus(State.SATISFIED)) is lost
        True
        """
        return other if other.state > self.state else self


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds that each phase of a barrier may take, on the monotonic clock.

    `inbound` bounds the caller's own wait for messages in flight to it.
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
        """The same timeout for every phase."""
        return cls(seconds, seconds, seconds, seconds)

    def of(self, phase: Phase) -> float:
        """The timeout of one phase."""
        return (self.rendezvous, self.inbound, self.outbound, self.processing)[phase]


@dataclass(frozen=True, slots=True)
class Member:
    """A process of the group, as last known to its coordinator.

    The instance identifies its name, the boot its session: a restarted process is a new member.
    """

    name: str
    instance: int
    boot: bytes
    host: str
    pid: int
    is_draining: bool = False
    last_phase: str = "has joined"
    silent: float = 0.0
    """Seconds since its last frame, when this was recorded."""

    def __str__(self) -> str:
        """For messages that name an offender.

        >>> print(Member("joiner", 7, bytes(16), "north", 41, last_phase="joined", silent=0.3))
        joiner (pid 41 on north; joined, last heartbeat 0.3 s before)
        """
        return (
            f"{self.name} (pid {self.pid} on {self.host}; {self.last_phase},"
            f" last heartbeat {self.silent:.1f} s before)"
        )


@dataclass(frozen=True, slots=True)
class Completion:
    """The result of a barrier for one caller."""

    barrier: str
    sequence: int
    """The leading position of the messages to the caller when this was sent."""
    require: Require
    rendezvous: PhaseStatus
    inbound: PhaseStatus = PhaseStatus()
    outbound: PhaseStatus = PhaseStatus()
    processing: PhaseStatus = PhaseStatus()
    offenders: Mapping[int, Member] = field(default_factory=lambda: MappingProxyType({}))
    """The members that the phases name, by instance."""

    def __getitem__(self, phase: Phase) -> PhaseStatus:
        return (self.rendezvous, self.inbound, self.outbound, self.processing)[phase]

    @property
    def is_satisfied(self) -> bool:
        """Whether every required phase is satisfied."""
        phases = (self.rendezvous, self.inbound, self.outbound, self.processing)
        return all(phase.is_good for phase in phases)

    def raise_for_status(self) -> Completion:
        """Raise `BarrierFailed` unless every required phase is satisfied; returns this value."""
        if not self.is_satisfied:
            raise BarrierFailed(self.barrier, str(self), self)
        return self

    def __str__(self) -> str:
        if self.is_satisfied:
            return f"barrier {self.barrier!r} is satisfied: {self._satisfied_phases()}"
        failed: dict[str, list[str]] = {}
        for phase in Phase:
            if not self[phase].is_good:
                failed.setdefault(self._describe(self[phase]), []).append(str(phase))
        details = "; ".join(f"{' and '.join(phases)} {why}" for why, phases in failed.items())
        return f"barrier {self.barrier!r} is not satisfied: {details}"

    def _satisfied_phases(self) -> str:
        return ", ".join(str(phase) for phase in Phase if self[phase].state is State.SATISFIED)

    def _describe(self, status: PhaseStatus) -> str:
        member = self.offenders.get(status.offender)
        named = (
            f" by {member}" if member else f" by member {status.offender:x}" * bool(status.offender)
        )
        return f"{status.state} ({status.failure}{named})"
