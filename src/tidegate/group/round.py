"""One round of a barrier: who has arrived, what each caller gets, who holds it up.

    gathering ──last arrival──▶ acknowledging ──last acknowledgement──▶ settled
        └────────── a member lost, too late, the coordinator stops ─────────▲

A round is told what happens and answers with what is to be done; it never waits and does no I/O.
The promises:

- Its members are those of the group at the first arrival who are not draining; nobody joins later.
- A member that drains or is lost is taken out at once. What it owed is downgraded when it went on
  purpose and fails when it did not. A lost member that had not arrived fails the rendezvous, and
  with it all that was asked for.
- Each member is asked for each acknowledgement at most once. An answer that nobody waits for any
  more changes nothing, and neither does time that passes in a phase that is over.
- A phase's state only gets worse.
- When it is settled everybody has the same verdict, seen through what each one asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeAlias

from tidegate.group.status import (
    NO_SEQUENCE,
    NOBODY,
    PHASES,
    Failure,
    Phase,
    PhaseStatus,
    Require,
    State,
    Timeouts,
)
from tidegate.group.wire import AckType

WARN_AT = 0.5
"""The part of a bound after which those who are waited for are named in a warning."""


Verdict: TypeAlias = tuple[PhaseStatus, PhaseStatus, PhaseStatus, PhaseStatus]
"""By phase."""


class Identity(NamedTuple):
    """A member in one of its lives."""

    instance: int
    boot: bytes


class Stage(Enum):
    """Where a round stands."""

    GATHERING = "gathering"
    ACKNOWLEDGING = "acknowledging"
    SETTLED = "settled"


@dataclass(frozen=True, slots=True)
class Ask:
    """A member is to confirm that it has come as far as `target` in what it is sent."""

    who: Identity
    ack: AckType
    target: int
    call: int
    """By which it has arrived."""
    within: float
    """Seconds that the phase may take."""


@dataclass(frozen=True, slots=True)
class Slow:
    """Half of a phase's bound has passed."""

    phase: Phase
    waiting_for: tuple[Identity, ...]
    remaining: float


@dataclass(slots=True)
class _Caller:
    """A member that has arrived, and what it was sent and has done when all had."""

    call: int
    require: int
    timeouts: Timeouts
    sent: int
    watermark: int = NO_SEQUENCE
    processed: int = NO_SEQUENCE


@dataclass(slots=True)
class _Wait:
    """A phase that waits, for whom, and how long."""

    owing: dict[Identity, None]
    warn_at: float
    fail_at: float
    is_warned: bool = False

    @property
    def due(self) -> float:
        return self.fail_at if self.is_warned else min(self.warn_at, self.fail_at)


@dataclass(slots=True)
class Round:
    """See the module. `leading` tells how many messages a member has been sent so far."""

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
    _seen: dict[tuple[int, tuple[int, int, int, int]], Verdict] = field(default_factory=dict)
    """Verdicts that were asked for: many callers see the same."""

    def __post_init__(self) -> None:
        self._pending = dict.fromkeys(self.members)
        self._status = dict.fromkeys(PHASES, _SATISFIED)

    @property
    def is_settled(self) -> bool:
        """Whether there is a verdict."""
        return self.stage is Stage.SETTLED

    @property
    def pending(self) -> tuple[Identity, ...]:
        """The members that have not arrived."""
        return tuple(self._pending)

    @property
    def callers(self) -> Sequence[tuple[Identity, int, Require]]:
        """Those who get a completion: who, by which call, with which requirements."""
        return [(who, it.call, _FLAGS[it.require]) for who, it in self._callers.items()]

    @property
    def required(self) -> int:
        """What its callers ask for, together."""
        together = 0
        for caller in self._callers.values():
            together |= caller.require
        return together

    @property
    def due(self) -> float | None:
        """When `expire` has something to say, if nothing else happens."""
        return min((wait.due for wait in self._waits.values()), default=None)

    def has(self, who: Identity) -> bool:
        """Whether it has arrived and is still here."""
        return who in self._callers

    def expects(self, who: Identity) -> bool:
        """Whether it is a member that has not arrived."""
        return who in self._pending

    def arrive(
        self, who: Identity, call: int, require: Require, timeouts: Timeouts, sent: int, now: float
    ) -> list[Ask]:
        """A member that is expected has arrived, behind `sent` messages of its own."""
        del self._pending[who]
        self._callers[who] = _Caller(call, int(require), timeouts, sent)
        self._hasten(timeouts.rendezvous, now)
        return self._go_on(now)

    def acknowledge(
        self, who: Identity, generation: int, ack: AckType, observed: int, *, success: bool
    ) -> None:
        """A member confirms, or cannot."""
        wait = self._waits.get(ack.phase)
        if generation != self.generation or wait is None or who not in wait.owing:
            return
        if not success:
            self._worsen(ack.phase, _because(Failure.PEER_DRAINING, who))
        elif ack is AckType.PROCESSING:
            self._callers[who].processed = observed
        self._is_through(ack.phase, who)

    def drain(self, who: Identity, now: float) -> list[Ask]:
        """A member takes part in nothing new: it goes if it has not arrived, else it finishes."""
        return self.drop(who, Failure.PEER_DRAINING, now) if who in self._pending else []

    def drop(self, who: Identity, failure: Failure, now: float) -> list[Ask]:
        """A member has gone, on purpose or not."""
        if self.is_settled or who not in self.members:
            return []
        if who in self._pending:
            del self._pending[who]
            self._gone.append((who, failure))
            self._worsen(Phase.RENDEZVOUS, _because(failure, who))
            if failure is not Failure.PEER_DRAINING:
                self._fail_all(_because(failure, who))
            return self._go_on(now)
        if self._callers.pop(who, None) is not None:
            self._leave_behind(who, failure)
        if not self._callers:
            self._settle()  # nobody is left to be told
        return self._go_on(now)

    def expire(self, now: float) -> list[Slow]:
        """Time has passed."""
        slow = []
        for phase, wait in list(self._waits.items()):
            if now >= wait.fail_at:
                self._too_late(phase, wait)
            elif now >= wait.warn_at and not wait.is_warned:
                wait.is_warned = True
                slow.append(Slow(phase, self._owing(phase, wait), wait.fail_at - now))
        return slow

    def stop(self) -> None:
        """The coordinator goes: whatever is not over has failed."""
        failed = PhaseStatus(State.FAILED, Failure.COORDINATOR_STOP)
        if self.stage is Stage.GATHERING:
            self._fail_all(failed)
        for phase in list(self._waits):
            self._worsen(phase, failed)
        self._settle()

    def status(self, phase: Phase) -> PhaseStatus:
        """How a phase stands, for those who asked for it."""
        return self._status[phase]

    def verdict(self, who: Identity) -> Verdict:
        """What a caller gets for each phase."""
        caller = self._callers[who]
        at = (caller.watermark, caller.watermark, caller.sent, caller.processed)
        return self.seen_through(caller.require, at)

    def seen_through(
        self, require: int, at: tuple[int, int, int, int] = (NO_SEQUENCE,) * 4
    ) -> Verdict:
        """The verdict for somebody with these requirements, and where its streams stand."""
        seen = self._seen.get((require, at))
        if seen is None:
            rendezvous, inbound, outbound, processing = (
                _placed(self._status[phase], at[phase]) if phase.is_for(require) else _NOT_REQUESTED
                for phase in PHASES
            )
            seen = self._seen[require, at] = rendezvous, inbound, outbound, processing
        return seen

    def _hasten(self, bound: float, now: float) -> None:
        """The most impatient caller decides how long the round may gather."""
        old = self._waits.get(Phase.RENDEZVOUS)
        if old is None or now + bound < old.fail_at:
            is_warned = old is not None and old.is_warned
            new = _Wait(self._pending, now + bound * WARN_AT, now + bound, is_warned)
            self._waits[Phase.RENDEZVOUS] = new

    def _go_on(self, now: float) -> list[Ask]:
        if self.stage is not Stage.GATHERING or self._pending:
            return []
        self.stage = Stage.ACKNOWLEDGING
        self.generation += 1
        self._waits.pop(Phase.RENDEZVOUS, None)
        for who, caller in self._callers.items():
            caller.watermark = self.leading(who)
        asked = [ask for ack in AckType for ask in self._begin(ack, now)]
        if not self._waits:
            self._settle()
        return asked

    def _begin(self, ack: AckType, now: float) -> list[Ask]:
        """Ask everybody who is here, if anybody wants to know."""
        bounds = [
            caller.timeouts.of(ack.phase)
            for caller in self._callers.values()
            if ack.phase.is_for(caller.require)
        ]
        if not bounds:
            return []
        for who, failure in self._gone:
            self._worsen(ack.phase, _because(failure, who))
        bound = min(bounds)
        owing = dict.fromkeys(self._callers)
        self._waits[ack.phase] = _Wait(owing, now + bound * WARN_AT, now + bound)
        return [
            Ask(who, ack, caller.watermark, caller.call, bound)
            for who, caller in self._callers.items()
        ]

    def _leave_behind(self, who: Identity, failure: Failure) -> None:
        self._gone.append((who, failure))
        for phase in [phase for phase, wait in self._waits.items() if who in wait.owing]:
            self._worsen(phase, _because(failure, who))
            self._is_through(phase, who)

    def _is_through(self, phase: Phase, who: Identity) -> None:
        wait = self._waits[phase]
        del wait.owing[who]
        if not wait.owing:
            self._end(phase)

    def _too_late(self, phase: Phase, wait: _Wait) -> None:
        first = self._owing(phase, wait)[0]
        late = _because(Failure.TIMEOUT, first)
        if phase is Phase.RENDEZVOUS:
            self._fail_all(late)
        else:
            self._worsen(phase, late)
            self._end(phase)

    def _owing(self, phase: Phase, wait: _Wait) -> tuple[Identity, ...]:
        owing = self._pending if phase is Phase.RENDEZVOUS else wait.owing
        return tuple(who for who in self.members if who in owing)

    def _end(self, phase: Phase) -> None:
        del self._waits[phase]
        if not self._waits and self.stage is Stage.ACKNOWLEDGING:
            self._settle()

    def _fail_all(self, status: PhaseStatus) -> None:
        """Without a rendezvous nothing else can be promised."""
        for phase in PHASES:
            self._worsen(phase, status)
        self._settle()

    def _worsen(self, phase: Phase, status: PhaseStatus) -> None:
        self._status[phase] = self._status[phase].worse(status)
        self._seen.clear()

    def _settle(self) -> None:
        self.stage = Stage.SETTLED
        self._waits.clear()


def _because(failure: Failure, who: Identity) -> PhaseStatus:
    """Who goes on purpose downgrades what it owed; anything else is a failure."""
    state = State.DOWNGRADED if failure is Failure.PEER_DRAINING else State.FAILED
    return PhaseStatus(state, failure, who.instance)


def _placed(status: PhaseStatus, sequence: int) -> PhaseStatus:
    return PhaseStatus(status.state, status.failure, status.offender, sequence)


_NOT_REQUESTED = PhaseStatus(State.NOT_REQUESTED, Failure.NONE, NOBODY)
_SATISFIED = PhaseStatus(State.SATISFIED)
_FLAGS = tuple(Require(number) for number in range(8))
