"""The rounds of a group: arrivals find theirs, settled ones are told to everybody in them.

A barrier has at most one round that gathers; the next may gather while earlier ones wait for
acknowledgements. Somebody who comes when its round was settled without it is told that round's
verdict, unless another round of the barrier waits for it: nobody waits for those who have left.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tidegate.group.log_events import log, tell
from tidegate.group.member_table import Entry, MemberTable, Missed
from tidegate.group.round import Ask, Identity, Round, Slow, Stage, Verdict
from tidegate.group.status import NOBODY, PHASES, Failure, Timeouts
from tidegate.group.wire import (
    About,
    AckRequest,
    AckResponse,
    BarrierCompletion,
    BarrierRequest,
    ChannelKind,
    Frame,
    Reason,
    Refusal,
)

if TYPE_CHECKING:
    from tidegate.group.status import Require

MOST_CALLS = 256
"""Barrier calls that one member may have open."""
MOST_MISSED = 256
"""Verdicts kept for a member that has missed their rounds."""

Send = Callable[[Identity, ChannelKind, Frame], None]


class Rounds:
    """The rounds that are open."""

    def __init__(self, roster: MemberTable, send: Send) -> None:
        self._roster = roster
        self._send = send
        self._next = 1
        self._gathering: dict[str, Round] = {}
        self._open: dict[int, Round] = {}
        self._gone: dict[Identity, About] = {}
        """Those who have gone, for as long as a round may have to name them."""

    def arrived(self, entry: Entry, frame: BarrierRequest, timeouts: Timeouts, now: float) -> None:
        """A member calls a barrier."""
        gathering = self._gathering.get(frame.barrier)
        if gathering is None and frame.barrier in entry.missed:
            self._tell_missed(entry, frame)
        elif (refused := _refused(entry, gathering)) is not None:
            self._refuse(entry, frame, refused)
        else:
            entry.calls += 1
            entry.last_phase = f"arrived at {frame.barrier!r}"
            entry.missed.pop(frame.barrier, None)
            round_ = gathering or self._begin(frame.barrier)
            if log.isEnabledFor(logging.DEBUG):
                tell("barrier.arrived", logging.DEBUG, barrier=frame.barrier, round=round_.number,
                     member=entry.member.name)  # fmt: skip
            asked = round_.arrive(
                entry.identity, frame.call, frame.require, timeouts, entry.sent, now
            )
            self._proceed(round_, asked, now)

    def acknowledged(self, entry: Entry, frame: AckResponse, now: float) -> None:
        """A member confirms something, or cannot; too late, it changes nothing."""
        round_ = self._open.get(frame.round)
        if round_ is None:
            return
        success = frame.success
        said = "confirmed" if success else "could not confirm"
        entry.last_phase = f"{said} {frame.ack.phase} of {round_.barrier!r}"
        who = entry.identity
        round_.acknowledge(who, frame.generation, frame.ack, frame.observed, success=success)
        tell("barrier.acknowledged", logging.DEBUG, barrier=round_.barrier, round=frame.round,
             phase=str(frame.ack.phase), member=entry.member.name, success=success)  # fmt: skip
        self._proceed(round_, (), now)

    def drain(self, who: Identity, now: float) -> None:
        """A member takes part in nothing new."""
        for round_ in tuple(self._open.values()):
            self._proceed(round_, round_.drain(who, now), now)

    def drop(self, entry: Entry, failure: Failure, now: float) -> None:
        """A member has gone."""
        who = entry.identity
        if self._may_name(who):
            self._gone[who] = About.of(entry.seen(now), is_here=False)
        for round_ in tuple(self._open.values()):
            self._proceed(round_, round_.drop(who, failure, now), now)

    def tick(self, now: float) -> float | None:
        """Time has passed; the moment at which to look again."""
        for round_ in tuple(self._open.values()):
            if round_.due is not None and round_.due <= now:
                for slow in round_.expire(now):
                    self._warn(round_, slow, now)
                self._proceed(round_, (), now)
        return min((r.due for r in self._open.values() if r.due is not None), default=None)

    def stop(self, now: float) -> None:
        """Complete every open round, for the coordinator goes."""
        for round_ in tuple(self._open.values()):
            round_.stop()
            self._proceed(round_, (), now)

    def _begin(self, barrier: str) -> Round:
        members = [entry.identity for entry in self._roster if not entry.is_draining]
        round_ = Round(self._next, barrier, members, self._leading)
        self._next += 1
        self._gathering[barrier] = self._open[round_.number] = round_
        return round_

    def _leading(self, who: Identity) -> int:
        entry = self._roster.get(who)
        return entry.leading if entry is not None else 0

    def _proceed(self, round_: Round, asked: Iterable[Ask], now: float) -> None:
        """Do what follows from a change of a round."""
        is_gathering = round_.stage is Stage.GATHERING
        if not is_gathering and self._gathering.get(round_.barrier) is round_:
            del self._gathering[round_.barrier]
        for ask in asked:
            where = (self._leading(ask.who), round_.number, round_.generation)
            request = AckRequest(*where, ask.ack, ask.target, ask.call, ask.within)
            self._send(ask.who, ChannelKind.CONTROL, request)
        if round_.is_settled and self._open.pop(round_.number, None) is not None:
            self._conclude(round_, now)

    def _conclude(self, round_: Round, now: float) -> None:
        offenders = self._offenders(round_, now)
        sequences = {}
        callers = round_.callers
        for who, call, require in callers:
            entry = self._roster.get(who)
            if entry is not None:
                entry.calls -= 1
                sequences[entry.member.name] = entry.leading
                verdict = round_.verdict(who)
                self._complete(entry, call, require, verdict, offenders)
        if callers:
            self._keep_for_the_late(round_, offenders)
        _log(round_, sequences, offenders)
        for who in [who for who in self._gone if not self._may_name(who)]:
            del self._gone[who]

    def _complete(
        self,
        entry: Entry,
        call: int,
        require: Require,
        verdict: Verdict,
        offenders: Iterable[About],
    ) -> None:
        for about in offenders:
            self._send(entry.identity, ChannelKind.CONTROL, about)
        completion = BarrierCompletion(call, entry.leading, require, *verdict)
        self._send(entry.identity, ChannelKind.CONTROL, completion)

    def _offenders(self, round_: Round, now: float) -> tuple[About, ...]:
        named = {round_.status(phase).offender for phase in PHASES} - {NOBODY}
        spoken_of = (who for who in round_.members if who.instance in named)
        return tuple(filter(None, (self._about(who, now) for who in spoken_of)))

    def _may_name(self, who: Identity) -> bool:
        return any(who in round_.members for round_ in self._open.values())

    def _about(self, who: Identity, now: float) -> About | None:
        """What is known of a member in that life of it."""
        if who in self._gone:
            return self._gone[who]
        entry = self._roster.get(who)
        return About.of(entry.seen(now), is_here=True) if entry is not None else None

    def _keep_for_the_late(self, round_: Round, offenders: tuple[About, ...]) -> None:
        for who in round_.pending:
            entry = self._roster.get(who)
            if entry is None:
                continue
            entry.missed[round_.barrier] = Missed(round_, offenders)
            while len(entry.missed) > MOST_MISSED:
                del entry.missed[next(iter(entry.missed))]

    def _tell_missed(self, entry: Entry, frame: BarrierRequest) -> None:
        missed = entry.missed.pop(frame.barrier)
        verdict = missed.round.seen_through(frame.require)
        self._complete(entry, frame.call, frame.require, verdict, missed.offenders)
        tell("barrier.missed", logging.WARNING, barrier=frame.barrier, round=missed.round.number,
             member=entry.member.name)  # fmt: skip

    def _refuse(self, entry: Entry, frame: BarrierRequest, reason: Reason) -> None:
        self._send(entry.identity, ChannelKind.CONTROL, Refusal(frame.call, reason))
        tell("barrier.refused", logging.WARNING, barrier=frame.barrier, member=entry.member.name,
             why=str(reason))  # fmt: skip

    def _warn(self, round_: Round, slow: Slow, now: float) -> None:
        waiting = [self._about(who, now) for who in slow.waiting_for]
        tell("barrier.slow", logging.WARNING, barrier=round_.barrier, round=round_.number,
             phase=str(slow.phase), remaining=round(slow.remaining, 3),
             waiting_for=[str(about.member) for about in waiting if about])  # fmt: skip


def _refused(entry: Entry, gathering: Round | None) -> Reason | None:
    who = entry.identity
    if gathering is not None and gathering.has(who):
        return Reason.TWICE_IN_ONE_ROUND
    if entry.is_draining:
        return Reason.DRAINING
    if gathering is not None and not gathering.expects(who):
        return Reason.NOT_A_MEMBER
    if entry.calls >= MOST_CALLS:
        return Reason.TOO_MANY
    return None


def _log(round_: Round, sequences: dict[str, int], offenders: Iterable[About]) -> None:
    verdict = round_.seen_through(round_.required)
    level = logging.DEBUG if all(status.is_good for status in verdict) else logging.WARNING
    if log.isEnabledFor(level):
        states = {str(phase): str(verdict[phase].state) for phase in PHASES}
        failures = {str(it): str(verdict[it].failure) for it in PHASES if not verdict[it].is_good}
        tell("barrier.settled", level, barrier=round_.barrier, round=round_.number, **states,
             failures=failures, offenders=[str(about.member) for about in offenders],
             sequences=sequences)  # fmt: skip
