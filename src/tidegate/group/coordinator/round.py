"""One round of a barrier: arrivals, acknowledgements, and the outcome for each caller.

    gathering ──last arrival──▶ acknowledging ──last acknowledgement──▶ settled
        └─────────── a member lost, timeout, the coordinator stops ─────────▲

A round takes events and returns the requests that follow from them; it never waits and does no
I/O. It guarantees:

- Its members are those of the group at the first arrival that are not draining; none joins later.
- A member that drains or is lost is removed at once. Phases that it owes are downgraded if it left
  on purpose and fail if it was lost. A lost member that had not arrived fails the rendezvous and
  with it every required phase.
- Each acknowledgement is requested from a member at most once. An acknowledgement that is no longer
  expected changes nothing, and neither does the bound of a phase that is over.
- A phase's state only escalates.
- A settled round has one outcome; each caller gets the part of it that it required.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeAlias

from tidegate.group.protocol.wire import AckType
from tidegate.group.status import (
    NO_MEMBER,
    NO_SEQUENCE,
    PHASES,
    Failure,
    Phase,
    PhaseStatus,
    Require,
    State,
    Timeouts,
)

WARN_AT = 0.5
"""The fraction of a bound after which a warning names the members that are waited for."""


RoundOutcome: TypeAlias = tuple[PhaseStatus, PhaseStatus, PhaseStatus, PhaseStatus]
"""One status per phase."""
Positions: TypeAlias = tuple[int, int, int, int]
"""One position in the caller's streams per phase."""


class Identity(NamedTuple):
    """A member by its instance and boot."""

    instance: int
    boot: bytes


class Stage(Enum):
    """The stages of a round."""

    GATHERING = "gathering"
    ACKNOWLEDGING = "acknowledging"
    SETTLED = "settled"


@dataclass(frozen=True, slots=True)
class RequestAck:
    """Request that a member confirms position `target` of its inbound messages."""

    identity: Identity
    ack: AckType
    target: int
    call: int
    """The call by which it has arrived."""
    within: float
    """Seconds that the phase may take."""


@dataclass(frozen=True, slots=True)
class SlowPhase:
    """Half of a phase's bound has passed."""

    phase: Phase
    waiting_for: tuple[Identity, ...]
    remaining: float


@dataclass(slots=True)
class _Caller:
    """A member that has arrived, and its positions when all had arrived."""

    call: int
    require: int
    timeouts: Timeouts
    sent: int
    watermark: int = NO_SEQUENCE
    processed: int = NO_SEQUENCE


@dataclass(slots=True)
class _Wait:
    """A phase in progress: the members it waits for, and its bounds."""

    owing: dict[Identity, None]
    warn_at: float
    fail_at: float
    is_warned: bool = False

    @property
    def due(self) -> float:
        return self.fail_at if self.is_warned else min(self.warn_at, self.fail_at)


@dataclass(slots=True)
class Round:
    """See the module. `leading` returns the number of messages sent to a member so far."""

    number: int
    barrier: str
    members: Sequence[Identity]
    leading: Callable[[Identity], int]
    stage: Stage = Stage.GATHERING
    generation: int = 1
    _pending: dict[Identity, None] = field(default_factory=dict)
    _callers: dict[Identity, _Caller] = field(default_factory=dict)
    _gone: list[tuple[Identity, Failure]] = field(default_factory=list)
    _waits: dict[Phase, _Wait] = field(default_factory=dict)
    _status: dict[Phase, PhaseStatus] = field(default_factory=dict)
    _outcomes: dict[tuple[int, Positions], RoundOutcome] = field(default_factory=dict)
    """Computed outcomes: many callers share the same."""

    def __post_init__(self) -> None:
        self._pending = dict.fromkeys(self.members)
        self._status = dict.fromkeys(PHASES, _SATISFIED)

    @property
    def is_settled(self) -> bool:
        """Whether the outcome is final."""
        return self.stage is Stage.SETTLED

    @property
    def pending(self) -> tuple[Identity, ...]:
        """The members that have not arrived."""
        return tuple(self._pending)

    @property
    def callers(self) -> Sequence[tuple[Identity, int, Require]]:
        """The callers that get a completion: identity, call, requirements."""
        callers = self._callers.items()
        return [(identity, caller.call, _FLAGS[caller.require]) for identity, caller in callers]

    @property
    def required(self) -> int:
        """The union of the callers' requirements."""
        combined = 0
        for caller in self._callers.values():
            combined |= caller.require
        return combined

    @property
    def due(self) -> float | None:
        """When `expire` has to be called, if nothing else happens."""
        return min((wait.due for wait in self._waits.values()), default=None)

    def has(self, identity: Identity) -> bool:
        """Whether the member has arrived and is still present."""
        return identity in self._callers

    def expects(self, identity: Identity) -> bool:
        """Whether the member has not arrived yet."""
        return identity in self._pending

    def arrive(
        self,
        identity: Identity,
        call: int,
        require: Require,
        timeouts: Timeouts,
        sent: int,
        now: float,
    ) -> list[RequestAck]:
        """An expected member arrives, after `sent` messages of its own."""
        del self._pending[identity]
        self._callers[identity] = _Caller(call, int(require), timeouts, sent)
        self._tighten_rendezvous(timeouts.rendezvous, now)
        return self._advance(now)

    def acknowledge(
        self, identity: Identity, generation: int, ack: AckType, observed: int, *, success: bool
    ) -> None:
        """A member confirms or declines."""
        wait = self._waits.get(ack.phase)
        if generation != self.generation or wait is None or identity not in wait.owing:
            return
        if not success:
            self._escalate(ack.phase, _status_of(Failure.PEER_DRAINING, identity))
        elif ack is AckType.PROCESSING:
            self._callers[identity].processed = observed
        self._confirmed(ack.phase, identity)

    def drain(self, identity: Identity, now: float) -> list[RequestAck]:
        """A member starts draining: it is removed if it has not arrived, else it finishes."""
        return self.drop(identity, Failure.PEER_DRAINING, now) if identity in self._pending else []

    def drop(self, identity: Identity, failure: Failure, now: float) -> list[RequestAck]:
        """A member has left or was lost."""
        if self.is_settled or identity not in self.members:
            return []
        if identity in self._pending:
            del self._pending[identity]
            self._gone.append((identity, failure))
            self._escalate(Phase.RENDEZVOUS, _status_of(failure, identity))
            if failure is not Failure.PEER_DRAINING:
                self._fail_all(_status_of(failure, identity))
            return self._advance(now)
        if self._callers.pop(identity, None) is not None:
            self._drop_caller(identity, failure)
        if not self._callers:
            self._settle()  # no caller is left
        return self._advance(now)

    def expire(self, now: float) -> list[SlowPhase]:
        """Time out phases that are over their bound; returns the phases to warn about."""
        slow = []
        for phase, wait in list(self._waits.items()):
            if now >= wait.fail_at:
                self._time_out(phase, wait)
            elif now >= wait.warn_at and not wait.is_warned:
                wait.is_warned = True
                slow.append(SlowPhase(phase, self._owing(phase, wait), wait.fail_at - now))
        return slow

    def stop(self) -> None:
        """The coordinator stops: every phase in progress fails."""
        failed = PhaseStatus(State.FAILED, Failure.COORDINATOR_STOP)
        if self.stage is Stage.GATHERING:
            self._fail_all(failed)
        for phase in list(self._waits):
            self._escalate(phase, failed)
        self._settle()

    def status(self, phase: Phase) -> PhaseStatus:
        """The status of a phase, for callers that require it."""
        return self._status[phase]

    def outcome_for(self, identity: Identity) -> RoundOutcome:
        """The outcome for a caller."""
        caller = self._callers[identity]
        at = (caller.watermark, caller.watermark, caller.sent, caller.processed)
        return self.outcome(caller.require, at)

    def outcome(self, require: int, at: Positions = (NO_SEQUENCE,) * 4) -> RoundOutcome:
        """The outcome for these requirements, with the caller's positions."""
        outcome = self._outcomes.get((require, at))
        if outcome is None:
            rendezvous, inbound, outbound, processing = (
                _with_sequence(self._status[phase], at[phase])
                if phase.is_for(require)
                else _NOT_REQUESTED
                for phase in PHASES
            )
            outcome = self._outcomes[require, at] = rendezvous, inbound, outbound, processing
        return outcome

    def _tighten_rendezvous(self, bound: float, now: float) -> None:
        """The shortest rendezvous timeout of all callers applies."""
        old = self._waits.get(Phase.RENDEZVOUS)
        if old is None or now + bound < old.fail_at:
            is_warned = old is not None and old.is_warned
            new = _Wait(self._pending, now + bound * WARN_AT, now + bound, is_warned)
            self._waits[Phase.RENDEZVOUS] = new

    def _advance(self, now: float) -> list[RequestAck]:
        if self.stage is not Stage.GATHERING or self._pending:
            return []
        self.stage = Stage.ACKNOWLEDGING
        self.generation += 1
        self._waits.pop(Phase.RENDEZVOUS, None)
        for identity, caller in self._callers.items():
            caller.watermark = self.leading(identity)
        requests = [request for ack in AckType for request in self._begin(ack, now)]
        if not self._waits:
            self._settle()
        return requests

    def _begin(self, ack: AckType, now: float) -> list[RequestAck]:
        """Request an acknowledgement of all callers, if at least one requires the phase."""
        bounds = [
            caller.timeouts.of(ack.phase)
            for caller in self._callers.values()
            if ack.phase.is_for(caller.require)
        ]
        if not bounds:
            return []
        for identity, failure in self._gone:
            self._escalate(ack.phase, _status_of(failure, identity))
        bound = min(bounds)
        owing = dict.fromkeys(self._callers)
        self._waits[ack.phase] = _Wait(owing, now + bound * WARN_AT, now + bound)
        return [
            RequestAck(identity, ack, caller.watermark, caller.call, bound)
            for identity, caller in self._callers.items()
        ]

    def _drop_caller(self, identity: Identity, failure: Failure) -> None:
        self._gone.append((identity, failure))
        for phase in [phase for phase, wait in self._waits.items() if identity in wait.owing]:
            self._escalate(phase, _status_of(failure, identity))
            self._confirmed(phase, identity)

    def _confirmed(self, phase: Phase, identity: Identity) -> None:
        wait = self._waits[phase]
        del wait.owing[identity]
        if not wait.owing:
            self._end(phase)

    def _time_out(self, phase: Phase, wait: _Wait) -> None:
        first = self._owing(phase, wait)[0]
        status = _status_of(Failure.TIMEOUT, first)
        if phase is Phase.RENDEZVOUS:
            self._fail_all(status)
        else:
            self._escalate(phase, status)
            self._end(phase)

    def _owing(self, phase: Phase, wait: _Wait) -> tuple[Identity, ...]:
        owing = self._pending if phase is Phase.RENDEZVOUS else wait.owing
        return tuple(identity for identity in self.members if identity in owing)

    def _end(self, phase: Phase) -> None:
        del self._waits[phase]
        if not self._waits and self.stage is Stage.ACKNOWLEDGING:
            self._settle()

    def _fail_all(self, status: PhaseStatus) -> None:
        """Fail every phase: without a rendezvous there are no other guarantees."""
        for phase in PHASES:
            self._escalate(phase, status)
        self._settle()

    def _escalate(self, phase: Phase, status: PhaseStatus) -> None:
        self._status[phase] = self._status[phase].worse(status)
        self._outcomes.clear()

    def _settle(self) -> None:
        self.stage = Stage.SETTLED
        self._waits.clear()


def _status_of(failure: Failure, identity: Identity) -> PhaseStatus:
    """A member that leaves on purpose downgrades the phases it owes; otherwise they fail."""
    state = State.DOWNGRADED if failure is Failure.PEER_DRAINING else State.FAILED
    return PhaseStatus(state, failure, identity.instance)


def _with_sequence(status: PhaseStatus, sequence: int) -> PhaseStatus:
    return PhaseStatus(status.state, status.failure, status.offender, sequence)


_NOT_REQUESTED = PhaseStatus(State.NOT_REQUESTED, Failure.NONE, NO_MEMBER)
_SATISFIED = PhaseStatus(State.SATISFIED)
_FLAGS = tuple(Require(number) for number in range(8))
