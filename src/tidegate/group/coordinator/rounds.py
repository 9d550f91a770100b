"""The open rounds of a group: assigns arrivals to rounds and completes the callers.

A barrier has at most one gathering round; the next may gather while earlier ones wait for
acknowledgements. A member that arrives after its round was settled without it gets that round's
outcome, unless another round of the barrier is gathering: it must not wait for members that have
moved on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tidegate.group.coordinator.member_table import MemberEntry, MemberTable, MissedRound
from tidegate.group.coordinator.round import (
    Identity,
    RequestAck,
    Round,
    RoundOutcome,
    SlowPhase,
    Stage,
)
from tidegate.group.log_events import log, log_event
from tidegate.group.protocol.wire import (
    AckRequest,
    AckResponse,
    BarrierCompletion,
    BarrierRequest,
    ChannelKind,
    Frame,
    MemberInfo,
    Refusal,
    RejectReason,
)
from tidegate.group.status import NO_MEMBER, PHASES, Failure, Timeouts

if TYPE_CHECKING:
    from tidegate.group.status import Require

MAX_CALLS = 256
"""Open barrier calls per member."""
MAX_MISSED = 256
"""Missed rounds kept per member."""

Send = Callable[[Identity, ChannelKind, Frame], None]


class Rounds:
    """The open rounds of one group."""

    def __init__(self, members: MemberTable, send: Send) -> None:
        self._members = members
        self._send = send
        self._next = 1
        self._gathering: dict[str, Round] = {}
        self._open: dict[int, Round] = {}
        self._gone: dict[Identity, MemberInfo] = {}
        """Removed members, for as long as an open round may name them."""

    def arrived(
        self, entry: MemberEntry, frame: BarrierRequest, timeouts: Timeouts, now: float
    ) -> None:
        """A member arrives at a barrier."""
        gathering = self._gathering.get(frame.barrier)
        if gathering is None and frame.barrier in entry.missed:
            self._complete_missed(entry, frame)
        elif (reason := _refuse_reason(entry, gathering)) is not None:
            self._refuse(entry, frame, reason)
        else:
            entry.calls += 1
            entry.last_phase = f"arrived at {frame.barrier!r}"
            entry.missed.pop(frame.barrier, None)
            round_ = gathering or self._begin(frame.barrier)
            if log.isEnabledFor(logging.DEBUG):
                log_event("barrier.arrived", logging.DEBUG, barrier=frame.barrier,
                          round=round_.number, member=entry.member.name)  # fmt: skip
            requests = round_.arrive(
                entry.identity, frame.call, frame.require, timeouts, entry.sent, now
            )
            self._proceed(round_, requests, now)

    def acknowledged(self, entry: MemberEntry, frame: AckResponse, now: float) -> None:
        """A member confirms or declines; a late acknowledgement changes nothing."""
        round_ = self._open.get(frame.round)
        if round_ is None:
            return
        success = frame.success
        verb = "confirmed" if success else "could not confirm"
        entry.last_phase = f"{verb} {frame.ack.phase} of {round_.barrier!r}"
        identity = entry.identity
        round_.acknowledge(identity, frame.generation, frame.ack, frame.observed, success=success)
        log_event("barrier.acknowledged", logging.DEBUG, barrier=round_.barrier, round=frame.round,
                  phase=str(frame.ack.phase), member=entry.member.name,
                  success=success)  # fmt: skip
        self._proceed(round_, (), now)

    def drain(self, identity: Identity, now: float) -> None:
        """A member starts draining."""
        for round_ in tuple(self._open.values()):
            self._proceed(round_, round_.drain(identity, now), now)

    def drop(self, entry: MemberEntry, failure: Failure, now: float) -> None:
        """A member has left or was lost."""
        identity = entry.identity
        if self._may_be_named(identity):
            self._gone[identity] = MemberInfo.of(entry.seen(now), is_present=False)
        for round_ in tuple(self._open.values()):
            self._proceed(round_, round_.drop(identity, failure, now), now)

    def tick(self, now: float) -> float | None:
        """Expire phases; the time of the next check, if one is needed."""
        for round_ in tuple(self._open.values()):
            if round_.due is not None and round_.due <= now:
                for slow in round_.expire(now):
                    self._warn(round_, slow, now)
                self._proceed(round_, (), now)
        return min((r.due for r in self._open.values() if r.due is not None), default=None)

    def stop(self, now: float) -> None:
        """Complete every open round, because the coordinator stops."""
        for round_ in tuple(self._open.values()):
            round_.stop()
            self._proceed(round_, (), now)

    def _begin(self, barrier: str) -> Round:
        members = [entry.identity for entry in self._members if not entry.is_draining]
        round_ = Round(self._next, barrier, members, self._leading)
        self._next += 1
        self._gathering[barrier] = self._open[round_.number] = round_
        return round_

    def _leading(self, identity: Identity) -> int:
        entry = self._members.get(identity)
        return entry.leading if entry is not None else 0

    def _proceed(self, round_: Round, requests: Iterable[RequestAck], now: float) -> None:
        """Send the requests of a round, and complete it once it is settled."""
        is_gathering = round_.stage is Stage.GATHERING
        if not is_gathering and self._gathering.get(round_.barrier) is round_:
            del self._gathering[round_.barrier]
        for request in requests:
            target = (request.ack, request.target, request.call, request.within)
            leading = self._leading(request.identity)
            frame = AckRequest(leading, round_.number, round_.generation, *target)
            self._send(request.identity, ChannelKind.CONTROL, frame)
        if round_.is_settled and self._open.pop(round_.number, None) is not None:
            self._complete_round(round_, now)

    def _complete_round(self, round_: Round, now: float) -> None:
        offenders = self._offenders(round_, now)
        sequences = {}
        callers = round_.callers
        for identity, call, require in callers:
            entry = self._members.get(identity)
            if entry is not None:
                entry.calls -= 1
                sequences[entry.member.name] = entry.leading
                outcome = round_.outcome_for(identity)
                self._complete(entry, call, require, outcome, offenders)
        if callers:
            self._record_missed(round_, offenders)
        _log(round_, sequences, offenders)
        for identity in [identity for identity in self._gone if not self._may_be_named(identity)]:
            del self._gone[identity]

    def _complete(
        self,
        entry: MemberEntry,
        call: int,
        require: Require,
        outcome: RoundOutcome,
        offenders: Iterable[MemberInfo],
    ) -> None:
        for info in offenders:
            self._send(entry.identity, ChannelKind.CONTROL, info)
        completion = BarrierCompletion(call, entry.leading, require, *outcome)
        self._send(entry.identity, ChannelKind.CONTROL, completion)

    def _offenders(self, round_: Round, now: float) -> tuple[MemberInfo, ...]:
        named = {round_.status(phase).offender for phase in PHASES} - {NO_MEMBER}
        offending = (identity for identity in round_.members if identity.instance in named)
        return tuple(filter(None, (self._member_info(identity, now) for identity in offending)))

    def _may_be_named(self, identity: Identity) -> bool:
        return any(identity in round_.members for round_ in self._open.values())

    def _member_info(self, identity: Identity, now: float) -> MemberInfo | None:
        """The last known state of a member."""
        if identity in self._gone:
            return self._gone[identity]
        entry = self._members.get(identity)
        return MemberInfo.of(entry.seen(now), is_present=True) if entry is not None else None

    def _record_missed(self, round_: Round, offenders: tuple[MemberInfo, ...]) -> None:
        for identity in round_.pending:
            entry = self._members.get(identity)
            if entry is None:
                continue
            entry.missed[round_.barrier] = MissedRound(round_, offenders)
            while len(entry.missed) > MAX_MISSED:
                del entry.missed[next(iter(entry.missed))]

    def _complete_missed(self, entry: MemberEntry, frame: BarrierRequest) -> None:
        missed = entry.missed.pop(frame.barrier)
        outcome = missed.round.outcome(frame.require)
        self._complete(entry, frame.call, frame.require, outcome, missed.offenders)
        log_event("barrier.missed", logging.WARNING, barrier=frame.barrier,
                  round=missed.round.number, member=entry.member.name)  # fmt: skip

    def _refuse(self, entry: MemberEntry, frame: BarrierRequest, reason: RejectReason) -> None:
        self._send(entry.identity, ChannelKind.CONTROL, Refusal(frame.call, reason))
        log_event("barrier.refused", logging.WARNING, barrier=frame.barrier,
                  member=entry.member.name, why=str(reason))  # fmt: skip

    def _warn(self, round_: Round, slow: SlowPhase, now: float) -> None:
        waiting = [self._member_info(identity, now) for identity in slow.waiting_for]
        log_event("barrier.slow", logging.WARNING, barrier=round_.barrier, round=round_.number,
                  phase=str(slow.phase), remaining=round(slow.remaining, 3),
                  waiting_for=[str(info.member) for info in waiting if info])  # fmt: skip


def _refuse_reason(entry: MemberEntry, gathering: Round | None) -> RejectReason | None:
    identity = entry.identity
    if gathering is not None and gathering.has(identity):
        return RejectReason.TWICE_IN_ONE_ROUND
    if entry.is_draining:
        return RejectReason.DRAINING
    if gathering is not None and not gathering.expects(identity):
        return RejectReason.NOT_A_MEMBER
    if entry.calls >= MAX_CALLS:
        return RejectReason.TOO_MANY
    return None


def _log(round_: Round, sequences: dict[str, int], offenders: Iterable[MemberInfo]) -> None:
    outcome = round_.outcome(round_.required)
    level = logging.DEBUG if all(status.is_good for status in outcome) else logging.WARNING
    if log.isEnabledFor(level):
        states = {str(phase): str(outcome[phase].state) for phase in PHASES}
        failures = {
            str(phase): str(outcome[phase].failure)
            for phase in PHASES
            if not outcome[phase].is_good
        }
        log_event("barrier.settled", level, barrier=round_.barrier, round=round_.number, **states,
                  failures=failures, offenders=[str(info.member) for info in offenders],
                  sequences=sequences)  # fmt: skip
