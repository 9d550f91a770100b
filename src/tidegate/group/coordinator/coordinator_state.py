"""The coordinator's decisions: membership, message routing, assignment of frames to rounds.

It receives frames with their member and time, and sends frames through `send`; it owns no socket
and no clock. Only the coordinator's thread uses it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from tidegate.errors import MalformedFrame
from tidegate.group.coordinator.member_table import MemberEntry, MemberTable
from tidegate.group.coordinator.round import Identity
from tidegate.group.coordinator.rounds import Rounds, Send
from tidegate.group.log_events import log_event
from tidegate.group.protocol.wire import (
    AckResponse,
    BarrierRequest,
    ChannelKind,
    Configure,
    Delivered,
    Drain,
    Frame,
    Heartbeat,
    MemberInfo,
    Posted,
)
from tidegate.group.status import NO_MEMBER, Failure, Timeouts


class CoordinatorState:
    """Members, timeouts and open rounds of one group."""

    def __init__(self, send: Send, timeouts: Timeouts) -> None:
        self.members = MemberTable()
        self.timeouts = timeouts
        self._send = send
        self._rounds = Rounds(self.members, send)

    def join(self, entry: MemberEntry, now: float) -> None:
        """Add a member; an earlier boot of the same instance is removed."""
        previous = self.members.by_instance(entry.member.instance)
        if previous is not None:
            self.remove_member(previous.identity, Failure.PEER_LOST, now)
        self.members.add(entry)
        self._send(entry.identity, ChannelKind.CONTROL, Configure.to(self.timeouts))
        for other in self.members:
            self._send(
                entry.identity, ChannelKind.CONTROL, MemberInfo.of(other.seen(now), is_present=True)
            )
        self._broadcast_info(entry, now, is_present=True)
        log_event("member.joined", **_facts(entry))

    def remove_member(self, identity: Identity, failure: Failure, now: float) -> None:
        """Remove a member that has left on purpose (`PEER_DRAINING`) or was lost."""
        entry = self.members.get(identity)
        if entry is None:
            return
        self._rounds.drop(entry, failure, now)
        self.members.remove(identity)
        self._broadcast_info(entry, now, is_present=False)
        level = logging.WARNING if failure is Failure.PEER_LOST else logging.INFO
        log_event("member.removed", level, **_facts(entry), why=str(failure), last=entry.last_phase)

    def receive(self, identity: Identity, frame: Frame, now: float) -> None:
        """Handle a member's frame; raises `MalformedFrame` for frames that members do not send."""
        entry = self.members.get(identity)
        if entry is None:
            return  # a late frame of a member that was removed
        entry.last_seen_at = now
        match frame:
            case BarrierRequest():
                self._rounds.arrived(entry, frame, self._timeouts_of(frame), now)
            case AckResponse():
                self._rounds.acknowledged(entry, frame, now)
            case Posted():
                self._forward(entry, frame)
            case Heartbeat():
                pass
            case Drain():
                self._drain(entry, now)
            case Configure():
                self._configure(entry, frame)
            case _:
                raise MalformedFrame(f"{type(frame).__name__} is not for a coordinator")

    def tick(self, now: float) -> float | None:
        """Expire phases; the time of the next check, if one is needed."""
        return self._rounds.tick(now)

    def stop(self, now: float) -> None:
        """Complete every open round, because the coordinator stops."""
        self._rounds.stop(now)

    def _forward(self, entry: MemberEntry, frame: Posted) -> None:
        if frame.sent != entry.sent + 1:
            raise MalformedFrame(f"message {frame.sent} follows message {entry.sent}")
        entry.sent = frame.sent
        for target in self._targets(entry, frame.to):
            target.leading += 1
            header = (target.leading, entry.member.name, frame.sent)
            delivered = Delivered(*header, frame.topic, frame.payload)
            self._send(target.identity, ChannelKind.MESSAGES, delivered)

    def _targets(self, sender: MemberEntry, to: int) -> Iterable[MemberEntry]:
        if to == NO_MEMBER:
            return (entry for entry in self.members if entry is not sender)
        found = self.members.by_instance(to)
        return (found,) if found is not None else ()

    def _drain(self, entry: MemberEntry, now: float) -> None:
        if entry.is_draining:
            return
        entry.is_draining = True
        self._rounds.drain(entry.identity, now)
        self._broadcast_info(entry, now, is_present=True)
        log_event("member.draining", **_facts(entry))

    def _configure(self, entry: MemberEntry, frame: Configure) -> None:
        self.timeouts = frame.timeouts
        for each in self.members:
            self._send(each.identity, ChannelKind.CONTROL, frame)
        log_event("group.configured", **_facts(entry), timeouts=str(self.timeouts))

    def _timeouts_of(self, frame: BarrierRequest) -> Timeouts:
        defaults = self.timeouts
        return Timeouts(
            defaults.rendezvous if frame.rendezvous is None else frame.rendezvous,
            defaults.inbound,
            defaults.outbound if frame.outbound is None else frame.outbound,
            defaults.processing if frame.processing is None else frame.processing,
        )

    def _broadcast_info(self, entry: MemberEntry, now: float, *, is_present: bool) -> None:
        info = MemberInfo.of(entry.seen(now), is_present=is_present)
        for other in self.members:
            if other is not entry:
                self._send(other.identity, ChannelKind.CONTROL, info)


def _facts(entry: MemberEntry) -> dict[str, object]:
    member = entry.member
    return {"member": member.name, "host": member.host, "pid": member.pid}
