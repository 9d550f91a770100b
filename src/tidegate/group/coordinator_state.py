"""What a coordinator decides: who is a member, where messages go, which round a word belongs to.

It is told which member said what and when, and writes frames to members through `send`; it owns no
socket and no clock. The coordinator's thread is the only one that uses it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from tidegate.errors import MalformedFrame
from tidegate.group.log_events import tell
from tidegate.group.member_table import Entry, MemberTable
from tidegate.group.round import Identity
from tidegate.group.rounds import Rounds, Send
from tidegate.group.status import NOBODY, Failure, Timeouts
from tidegate.group.wire import (
    About,
    AckResponse,
    BarrierRequest,
    ChannelKind,
    Configure,
    Delivered,
    Drain,
    Frame,
    Heartbeat,
    Posted,
)


class CoordinatorState:
    """The group as its coordinator sees it."""

    def __init__(self, send: Send, timeouts: Timeouts) -> None:
        self.roster = MemberTable()
        self.timeouts = timeouts
        self._send = send
        self._rounds = Rounds(self.roster, send)

    def join(self, entry: Entry, now: float) -> None:
        """Somebody is here; an older life of it is over."""
        old = self.roster.by_instance(entry.member.instance)
        if old is not None:
            self.part(old.identity, Failure.PEER_LOST, now)
        self.roster.add(entry)
        self._send(entry.identity, ChannelKind.CONTROL, Configure.to(self.timeouts))
        for other in self.roster:
            self._send(entry.identity, ChannelKind.CONTROL, About.of(other.seen(now), is_here=True))
        self._announce(entry, now, is_here=True)
        tell("member.joined", **_named(entry))

    def part(self, who: Identity, failure: Failure, now: float) -> None:
        """A member has left on purpose (`PEER_DRAINING`) or was lost."""
        entry = self.roster.get(who)
        if entry is None:
            return
        self._rounds.drop(entry, failure, now)
        self.roster.remove(who)
        self._announce(entry, now, is_here=False)
        level = logging.WARNING if failure is Failure.PEER_LOST else logging.INFO
        tell("member.gone", level, **_named(entry), why=str(failure), last=entry.last_phase)

    def receive(self, who: Identity, frame: Frame, now: float) -> None:
        """A member has said something; `MalformedFrame` if no member may say it."""
        entry = self.roster.get(who)
        if entry is None:
            return  # a late word of a life that is over
        entry.heard_at = now
        match frame:
            case BarrierRequest():
                self._rounds.arrived(entry, frame, self._timeouts_of(frame), now)
            case AckResponse():
                self._rounds.acknowledged(entry, frame, now)
            case Posted():
                self._pass_on(entry, frame)
            case Heartbeat():
                pass
            case Drain():
                self._drain(entry, now)
            case Configure():
                self._configure(entry, frame)
            case _:
                raise MalformedFrame(f"{type(frame).__name__} is not for a coordinator")

    def tick(self, now: float) -> float | None:
        """Time has passed; the moment at which to look again."""
        return self._rounds.tick(now)

    def stop(self, now: float) -> None:
        """Complete every open round, for the coordinator goes."""
        self._rounds.stop(now)

    def _pass_on(self, entry: Entry, frame: Posted) -> None:
        if frame.sent != entry.sent + 1:
            raise MalformedFrame(f"message {frame.sent} follows message {entry.sent}")
        entry.sent = frame.sent
        for target in self._targets(entry, frame.to):
            target.leading += 1
            where = (target.leading, entry.member.name, frame.sent)
            delivered = Delivered(*where, frame.topic, frame.payload)
            self._send(target.identity, ChannelKind.MESSAGES, delivered)

    def _targets(self, sender: Entry, to: int) -> Iterable[Entry]:
        if to == NOBODY:
            return (entry for entry in self.roster if entry is not sender)
        found = self.roster.by_instance(to)
        return (found,) if found is not None else ()

    def _drain(self, entry: Entry, now: float) -> None:
        if entry.is_draining:
            return
        entry.is_draining = True
        self._rounds.drain(entry.identity, now)
        self._announce(entry, now, is_here=True)
        tell("member.draining", **_named(entry))

    def _configure(self, entry: Entry, frame: Configure) -> None:
        self.timeouts = frame.timeouts
        for each in self.roster:
            self._send(each.identity, ChannelKind.CONTROL, frame)
        tell("group.configured", **_named(entry), timeouts=str(self.timeouts))

    def _timeouts_of(self, frame: BarrierRequest) -> Timeouts:
        ours = self.timeouts
        return Timeouts(
            ours.rendezvous if frame.rendezvous is None else frame.rendezvous,
            ours.inbound,
            ours.outbound if frame.outbound is None else frame.outbound,
            ours.processing if frame.processing is None else frame.processing,
        )

    def _announce(self, entry: Entry, now: float, *, is_here: bool) -> None:
        about = About.of(entry.seen(now), is_here=is_here)
        for other in self.roster:
            if other is not entry:
                self._send(other.identity, ChannelKind.CONTROL, about)


def _named(entry: Entry) -> dict[str, object]:
    member = entry.member
    return {"member": member.name, "host": member.host, "pid": member.pid}
