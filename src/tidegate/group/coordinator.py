"""The coordinator of a group: one thread that talks to every member.

It accepts connections, lets in those who prove to know the secret, hands what members say to
`Coordination` and writes what that answers. A member has two connections: messages may pile up on
one while acknowledgements and verdicts travel on the other. Whoever takes its messages too slowly
holds up those who send, never those who acknowledge, and not for long: then it is lost like a
silent one.

Nobody outside can end it: garbage costs its sender the connection, silence its membership. A fault
of its own ends it, with the open rounds completed as by a stop, and `check` tells of it.
"""

from __future__ import annotations

import logging
import selectors
import socket
from contextlib import suppress
from threading import Event, Thread
from time import monotonic
from typing import Self

from tidegate.errors import CoordinatorBroken, CoordinatorUnreachable, MalformedFrame
from tidegate.group.address import Address
from tidegate.group.authentication import checked_secret, coordinator_proof, is_proven
from tidegate.group.backpressure import HOLDING, FlowControl
from tidegate.group.boot_ids import gives_way
from tidegate.group.connection import Connection
from tidegate.group.coordinator_state import CoordinatorState
from tidegate.group.listener import Listener
from tidegate.group.log_events import Repeated, log, tell
from tidegate.group.member_table import Entry, instance_of
from tidegate.group.round import Identity
from tidegate.group.status import Failure, Member, Timeouts
from tidegate.group.unauthenticated import UnauthenticatedConnections
from tidegate.group.wire import (
    ChannelKind,
    Frame,
    Goodbye,
    Heartbeat,
    Hello,
    Leave,
    Reason,
    Welcome,
)

HEARTBEAT = 1.0
"""Seconds between two heartbeats."""
SILENCE = 10.0
"""Seconds without a word after which a member is lost."""
ADMISSION = 5.0
"""Seconds in which a connection must become a member's."""
ACCEPTED_AT_ONCE = 64
"""Connections that are accepted before members are served again."""
MOST_CONTROL = 4 << 20
"""Bytes of control that a member may leave untaken before it is lost."""
JOIN_BOUND = 10.0


class Coordinator:
    """Coordinates a group from a thread of its own until it is closed.

    `silence` is how long a member may say nothing, frozen or cut off, before it counts as lost; a
    member that dies is lost as soon as the system closes its connections. `admission` is how long a
    stranger may take to prove itself.
    """

    def __init__(
        self,
        address: str,
        *,
        secret: bytes,
        timeouts: Timeouts | None = None,
        heartbeat: float = HEARTBEAT,
        silence: float = SILENCE,
        admission: float = ADMISSION,
    ) -> None:
        self._secret = checked_secret(secret)
        self._heartbeat, self._silence, self._admission = heartbeat, silence, admission
        wanted = Address.parse(address)
        try:
            self._door = Listener(wanted)
        except OSError as trouble:
            raise CoordinatorUnreachable(address, f"cannot listen there: {trouble}") from trouble
        self._selector = selectors.DefaultSelector()
        self._waker, self._woken = socket.socketpair()
        self._group = CoordinatorState(self._write, timeouts or Timeouts())
        self._strangers = UnauthenticatedConnections()
        self._halves: dict[Identity, tuple[Connection, Hello]] = {}
        self._channels: dict[Identity, dict[ChannelKind, Connection]] = {}
        self._flow = FlowControl(min(silence, HOLDING))
        self._repeated = Repeated()
        self._overfull: set[Connection] = set()
        self._reads_messages = True
        self._beaten_at = self._looked_at = monotonic()
        self._stopping = Event()
        self._fault: BaseException | None = None
        """What has ended the thread, if anything but closing did."""
        self._thread = Thread(target=self._run, name=f"coordinator {self.address}", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Where members reach it, the port included that the system chose."""
        return str(self._door.address)

    def check(self) -> None:
        """Raise `CoordinatorBroken` if a fault of its own has ended it."""
        if self._fault is not None:
            raise CoordinatorBroken(self.address, repr(self._fault)) from self._fault

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Complete every open round with *coordinator stop*, say goodbye, and go."""
        self._stopping.set()
        with suppress(OSError):
            self._waker.send(b"\0")
        self._thread.join(JOIN_BOUND)
        if self._thread.is_alive():
            log.warning("the coordinator at %s does not end", self.address)

    # --- the loop ---

    def _run(self) -> None:
        try:
            self._door.open(self._selector)
            self._selector.register(self._woken, selectors.EVENT_READ)
            while not self._stopping.is_set():
                self._turn()
        except BaseException as fault:  # noqa: BLE001  a dead thread must never look alive
            self._break(fault)
        try:
            self._say_goodbye()
        except Exception:  # noqa: BLE001  it has a fault; that it closes says as much
            log.exception("the coordinator at %s could not complete every round", self.address)
        finally:
            self._close_everything()

    def _break(self, fault: BaseException) -> None:
        self._fault = fault
        facts = {"address": self.address, "why": repr(fault)}
        log.critical("the coordinator at %s has ended: %r", self.address, fault, exc_info=True,
                     extra={"event": "coordinator.broken", "facts": facts})  # fmt: skip

    def _turn(self) -> None:
        due = self._look_after(monotonic())
        ready = self._selector.select(max(0.0, due - monotonic()))
        for key, events in ready:
            if isinstance(key.data, Connection):
                self._serve(key.data, events)
        if any(key.data is self._door for key, _ in ready):
            self._accept_some()  # last: a proof that has arrived counts before room is made
        self._bury()

    def _serve(self, connection: Connection, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            connection.flush()
            self._watch(connection)
        if events & selectors.EVENT_READ:
            self._hear(connection)

    def _hear(self, connection: Connection) -> None:
        try:
            for frame in connection.read():
                if connection.who is None:
                    self._admit(connection, frame)
                elif isinstance(frame, Leave):
                    self._part(connection.who, Failure.PEER_DRAINING, None)
                else:
                    self._group.receive(connection.who, frame, monotonic())
        except MalformedFrame as garbage:
            self._expel(connection, garbage)
        if connection.is_broken:
            self._forget(connection)

    def _look_after(self, now: float) -> float:
        """Keep time: rounds, heartbeats, the silent and the strangers."""
        if now - self._looked_at > self._silence / 2:
            for entry in self._group.roster:  # it was this side that did not listen
                entry.heard_at = now
            self._flow.forgive(now)
        self._looked_at = now
        if now - self._beaten_at >= self._heartbeat:
            self._beaten_at = now
            self._beat(now)
        dues = (self._group.tick(now), self._door.look(self._selector, now))
        next_beat = self._beaten_at + self._heartbeat
        return min([next_beat, *(due for due in dues if due is not None)])

    def _beat(self, now: float) -> None:
        for entry in self._group.roster:
            if now - entry.heard_at > self._silence:
                self._part(entry.identity, Failure.PEER_LOST, Reason.SILENT)
            else:
                self._write(entry.identity, ChannelKind.CONTROL, Heartbeat())
        for clogged in self._flow.late(now):
            self._give_up(clogged)
        halves = [connection for connection, _ in self._halves.values()]
        for stranger in (*self._strangers, *halves):
            if now - stranger.opened_at > self._admission:
                self._turn_away(stranger, Reason.NOT_PROVEN)

    def _bury(self) -> None:
        """Let go of members that leave too much of what they are told untaken."""
        while self._overfull:
            self._give_up(self._overfull.pop())

    def _give_up(self, connection: Connection) -> None:
        if connection.who is not None and connection.who in self._channels:
            kind, untaken = connection.channel.name.lower(), len(connection.backlog)
            tell("member.too_slow", logging.WARNING, member=self._name_of(connection),
                 channel=kind, untaken=untaken)  # fmt: skip
            self._part(connection.who, Failure.PEER_LOST, Reason.TOO_SLOW)

    # --- who comes and goes ---

    def _accept_some(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            connection = self._door.accept(self._selector, monotonic())
            if connection is None:
                return
            self._challenge(connection)

    def _challenge(self, connection: Connection) -> None:
        """Ask for a proof; above the bound another connection without one is evicted."""
        evicted = self._strangers.add(connection)
        self._selector.register(connection, selectors.EVENT_READ, connection)
        connection.write(connection.challenge)
        if evicted is not None:
            self._repeated.tell("strangers.evicted", peer=evicted.peer)
            self._drop(evicted)

    def _admit(self, connection: Connection, hello: Frame) -> None:
        assert isinstance(hello, Hello)
        reason = self._why_not(connection, hello)
        if reason is not None:
            self._turn_away(connection, reason)
            return
        who = Identity(instance_of(hello.name), hello.boot)
        connection.admit(who, hello.channel)
        self._strangers.discard(connection)
        proof = coordinator_proof(self._secret, connection.challenge, hello)
        connection.write(Welcome(proof, self._heartbeat, self._silence))
        if hello.channel is ChannelKind.CONTROL:
            self._halves[who] = connection, hello
        else:
            self._join(who, connection)

    def _why_not(self, connection: Connection, hello: Hello) -> Reason | None:
        if not is_proven(self._secret, connection.challenge, hello):
            return Reason.NOT_PROVEN
        who = Identity(instance_of(hello.name), hello.boot)
        other = self._group.roster.by_instance(who.instance)
        if other is not None and other.member.name != hello.name:
            return Reason.NAME_TAKEN
        if other is not None and gives_way(hello.boot, other.member.boot):
            return Reason.REPLACED
        if hello.channel is ChannelKind.CONTROL:
            return Reason.NAME_TAKEN if who in self._halves or who in self._channels else None
        return None if who in self._halves else Reason.NOT_A_MEMBER

    def _join(self, who: Identity, messages: Connection) -> None:
        control, hello = self._halves.pop(who)
        old = self._group.roster.by_instance(who.instance)
        if old is not None:
            self._part(old.identity, Failure.PEER_LOST, Reason.REPLACED)
        self._channels[who] = {ChannelKind.CONTROL: control, ChannelKind.MESSAGES: messages}
        member = Member(hello.name, who.instance, who.boot, hello.host, hello.pid)
        self._group.join(Entry(member, heard_at=monotonic()), monotonic())
        self._watch(messages)

    def _part(self, who: Identity, failure: Failure, reason: Reason | None) -> None:
        """A member goes: the rounds hear of it, then its connections are closed."""
        self._group.part(who, failure, monotonic())
        channels = self._channels.pop(who, {})
        if reason is not None and channels:
            channels[ChannelKind.CONTROL].write(Goodbye(reason))
        for connection in channels.values():
            self._drop(connection)

    def _expel(self, connection: Connection, garbage: MalformedFrame) -> None:
        entry = self._group.roster.get(connection.who) if connection.who else None
        named = str(entry.seen(monotonic())) if entry else f"a stranger at {connection.peer}"
        self._repeated.tell("member.garbage", peer=named, why=garbage.reason)
        if connection.who is not None and connection.who in self._channels:
            self._part(connection.who, Failure.PEER_LOST, Reason.MALFORMED)
        else:
            self._turn_away(connection, Reason.MALFORMED)

    def _turn_away(self, connection: Connection, reason: Reason) -> None:
        self._repeated.tell("member.turned_away", peer=connection.peer, why=str(reason))
        connection.write(Goodbye(reason))
        self._forget(connection)

    def _forget(self, connection: Connection) -> None:
        """A connection has ended, and whatever depends on it."""
        who = connection.who
        if who is not None and connection in self._channels.get(who, {}).values():
            self._let_it_say_goodbye(who)
            self._part(who, Failure.PEER_LOST, None)
            return
        if who is not None and who in self._halves and self._halves[who][0] is connection:
            del self._halves[who]
        self._drop(connection)

    def _let_it_say_goodbye(self, who: Identity) -> None:
        """Its other channel may have ended first: that it leaves on purpose stands on this one."""
        control = self._channels[who][ChannelKind.CONTROL]
        if not control.is_broken:
            self._hear(control)

    def _drop(self, connection: Connection) -> None:
        self._strangers.discard(connection)
        with suppress(KeyError, ValueError):
            self._selector.unregister(connection)
        connection.close()
        self._flow.forget(connection)
        self._open_or_shut()

    # --- writing ---

    def _write(self, who: Identity, channel: ChannelKind, frame: Frame) -> None:
        connection = self._channels.get(who, {}).get(channel)
        if connection is None:
            return
        had_backlog = bool(connection.backlog)
        connection.write(frame)
        if connection.backlog and not had_backlog:
            self._watch(connection)
        elif had_backlog:
            self._weigh(connection)

    def _watch(self, connection: Connection) -> None:
        """Listen to it, and for when it takes more if it has not taken everything."""
        if connection.is_broken:
            return
        is_read = connection.channel is ChannelKind.CONTROL or self._reads_messages
        events = selectors.EVENT_READ * is_read | selectors.EVENT_WRITE * bool(connection.backlog)
        with suppress(KeyError):
            self._selector.unregister(connection)
        if events:
            self._selector.register(connection, events, connection)
        self._weigh(connection)

    def _weigh(self, connection: Connection) -> None:
        if connection.channel is ChannelKind.MESSAGES:
            self._flow.weigh(connection, monotonic())
            self._open_or_shut()
        elif connection.who is not None and len(connection.backlog) > MOST_CONTROL:
            self._overfull.add(connection)

    def _open_or_shut(self) -> None:
        """Take messages only while everybody takes theirs."""
        if self._reads_messages is self._flow.is_free:
            return
        self._reads_messages = self._flow.is_free
        waiting_for = [self._name_of(connection) for connection in self._flow.clogged]
        event = "messages.flow" if self._reads_messages else "messages.held"
        tell(event, logging.WARNING, waiting_for=waiting_for)
        for channels in tuple(self._channels.values()):
            self._watch(channels[ChannelKind.MESSAGES])

    def _name_of(self, connection: Connection) -> str:
        entry = self._group.roster.get(connection.who) if connection.who else None
        return str(entry.seen(monotonic())) if entry else connection.peer

    def _say_goodbye(self) -> None:
        self._group.stop(monotonic())
        for channels in self._channels.values():
            channels[ChannelKind.CONTROL].write(Goodbye(Reason.STOPPING))

    def _close_everything(self) -> None:
        for channels in self._channels.values():
            for connection in channels.values():
                connection.close()
        halves = [connection for connection, _ in self._halves.values()]
        for stranger in (*self._strangers, *halves):
            stranger.close()
        self._door.close()
        self._selector.close()
        self._waker.close()
        self._woken.close()
