"""The coordinator of a group: one thread that serves every member.

It accepts and authenticates connections, passes frames to `CoordinatorState` and writes the frames
that it returns. A member has two connections: messages may queue up on one while acknowledgements
and completions travel on the other. A member that reads its messages too slowly blocks senders,
never acknowledgements, and for a bounded time: then it is removed like a silent one.

No peer can stop the coordinator: a malformed frame closes its connection, silence ends its
membership. An internal error stops it, with the open rounds completed as by a stop; `check`
raises it.
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
from tidegate.group.coordinator.backpressure import MAX_BLOCKED, FlowControl
from tidegate.group.coordinator.connection import Connection
from tidegate.group.coordinator.coordinator_state import CoordinatorState
from tidegate.group.coordinator.listener import Listener
from tidegate.group.coordinator.member_table import MemberEntry, instance_of
from tidegate.group.coordinator.round import Identity
from tidegate.group.coordinator.unauthenticated import UnauthenticatedConnections
from tidegate.group.log_events import RateLimitedLog, log, log_event
from tidegate.group.member.boot_ids import is_superseded
from tidegate.group.protocol.authentication import checked_secret, coordinator_proof, is_proven
from tidegate.group.protocol.wire import (
    ChannelKind,
    Frame,
    Goodbye,
    Heartbeat,
    Hello,
    Leave,
    RejectReason,
    Welcome,
)
from tidegate.group.status import Failure, Member, Timeouts

HEARTBEAT = 1.0
"""Seconds between two heartbeats."""
SILENCE = 10.0
"""Seconds without a frame after which a member is lost."""
ADMISSION_TIMEOUT = 5.0
"""Seconds in which a connection must authenticate and join."""
ACCEPT_BATCH = 64
"""Connections that are accepted before members are served again."""
MAX_CONTROL_BACKLOG = 4 << 20
"""Bytes of unread control frames after which a member is lost."""
CLOSE_TIMEOUT = 10.0


class Coordinator:
    """Coordinates a group on its own thread until it is closed.

    `silence` is how long a member may send nothing, frozen or partitioned, before it counts as
    lost; a member whose process ends is lost as soon as the system closes its connections.
    `admission` bounds the authentication of a connection.
    """

    def __init__(
        self,
        address: str,
        *,
        secret: bytes,
        timeouts: Timeouts | None = None,
        heartbeat: float = HEARTBEAT,
        silence: float = SILENCE,
        admission: float = ADMISSION_TIMEOUT,
    ) -> None:
        self._secret = checked_secret(secret)
        self._heartbeat, self._silence, self._admission = heartbeat, silence, admission
        requested = Address.parse(address)
        try:
            self._listener = Listener(requested)
        except OSError as error:
            raise CoordinatorUnreachable(address, f"cannot listen there: {error}") from error
        self._selector = selectors.DefaultSelector()
        self._waker, self._woken = socket.socketpair()
        self._state = CoordinatorState(self._write, timeouts or Timeouts())
        self._unauthenticated = UnauthenticatedConnections()
        self._half_open: dict[Identity, tuple[Connection, Hello]] = {}
        self._channels: dict[Identity, dict[ChannelKind, Connection]] = {}
        self._flow_control = FlowControl(min(silence, MAX_BLOCKED))
        self._rate_limited_log = RateLimitedLog()
        self._over_limit: set[Connection] = set()
        self._reads_messages = True
        self._last_heartbeat_at = self._last_timer_at = monotonic()
        self._stopping = Event()
        self._failure: BaseException | None = None
        """The error that has ended the thread, if it was not closed."""
        self._thread = Thread(target=self._run, name=f"coordinator {self.address}", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """The address for members, with the port that the system chose."""
        return str(self._listener.address)

    def check(self) -> None:
        """Raise `CoordinatorBroken` if an internal error has stopped it."""
        if self._failure is not None:
            raise CoordinatorBroken(self.address, repr(self._failure)) from self._failure

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Complete every open round with *coordinator stop*, notify the members, and stop."""
        self._stopping.set()
        with suppress(OSError):
            self._waker.send(b"\0")
        self._thread.join(CLOSE_TIMEOUT)
        if self._thread.is_alive():
            log.warning("coordinator thread at %s has not stopped within %g s", self.address,
                        CLOSE_TIMEOUT)  # fmt: skip

    # --- the loop ---

    def _run(self) -> None:
        try:
            self._listener.open(self._selector)
            self._selector.register(self._woken, selectors.EVENT_READ)
            while not self._stopping.is_set():
                self._run_once()
        except BaseException as error:  # noqa: BLE001  the failure is reported by `check`
            self._record_failure(error)
        try:
            self._complete_and_send_goodbye()
        except Exception:  # noqa: BLE001  connections are closed in any case
            log.exception("coordinator at %s could not complete every round", self.address)
        finally:
            self._close_everything()

    def _record_failure(self, error: BaseException) -> None:
        self._failure = error
        facts = {"address": self.address, "why": repr(error)}
        log.critical("coordinator at %s failed: %r", self.address, error, exc_info=True,
                     extra={"event": "coordinator.broken", "facts": facts})  # fmt: skip

    def _run_once(self) -> None:
        due = self._run_timers(monotonic())
        ready = self._selector.select(max(0.0, due - monotonic()))
        for key, events in ready:
            if isinstance(key.data, Connection):
                self._serve(key.data, events)
        if any(key.data is self._listener for key, _ in ready):
            self._accept()  # last: proofs that have arrived are checked before any eviction
        self._remove_over_limit()

    def _serve(self, connection: Connection, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            connection.flush()
            self._update_interest(connection)
        if events & selectors.EVENT_READ:
            self._read(connection)

    def _read(self, connection: Connection) -> None:
        try:
            for frame in connection.read():
                if connection.identity is None:
                    self._admit(connection, frame)
                elif isinstance(frame, Leave):
                    self._remove_member(connection.identity, Failure.PEER_DRAINING, None)
                else:
                    self._state.receive(connection.identity, frame, monotonic())
        except MalformedFrame as malformed:
            self._reject_malformed(connection, malformed)
        if connection.is_broken:
            self._connection_closed(connection)

    def _run_timers(self, now: float) -> float:
        """Expire rounds, heartbeats and admissions; the time of the next check."""
        if now - self._last_timer_at > self._silence / 2:
            for entry in self._state.members:  # this process was suspended, not the members
                entry.last_seen_at = now
            self._flow_control.reset(now)
        self._last_timer_at = now
        if now - self._last_heartbeat_at >= self._heartbeat:
            self._last_heartbeat_at = now
            self._send_heartbeats(now)
        dues = (self._state.tick(now), self._listener.reopen_if_due(self._selector, now))
        next_heartbeat = self._last_heartbeat_at + self._heartbeat
        return min([next_heartbeat, *(due for due in dues if due is not None)])

    def _send_heartbeats(self, now: float) -> None:
        for entry in self._state.members:
            if now - entry.last_seen_at > self._silence:
                self._remove_member(entry.identity, Failure.PEER_LOST, RejectReason.SILENT)
            else:
                self._write(entry.identity, ChannelKind.CONTROL, Heartbeat())
        for blocked in self._flow_control.expired(now):
            self._remove_slow(blocked)
        halves = [connection for connection, _ in self._half_open.values()]
        for connection in (*self._unauthenticated, *halves):
            if now - connection.opened_at > self._admission:
                self._reject(connection, RejectReason.NOT_PROVEN)

    def _remove_over_limit(self) -> None:
        """Remove members with too many unread control frames."""
        while self._over_limit:
            self._remove_slow(self._over_limit.pop())

    def _remove_slow(self, connection: Connection) -> None:
        if connection.identity is not None and connection.identity in self._channels:
            kind, backlog = connection.channel.name.lower(), len(connection.backlog)
            log_event("member.too_slow", logging.WARNING, member=self._describe(connection),
                      channel=kind, backlog=backlog)  # fmt: skip
            self._remove_member(connection.identity, Failure.PEER_LOST, RejectReason.TOO_SLOW)

    # --- admission and removal ---

    def _accept(self) -> None:
        for _ in range(ACCEPT_BATCH):
            connection = self._listener.accept(self._selector, monotonic())
            if connection is None:
                return
            self._challenge(connection)

    def _challenge(self, connection: Connection) -> None:
        """Send a challenge; above the bound another unauthenticated connection is evicted."""
        evicted = self._unauthenticated.add(connection)
        self._selector.register(connection, selectors.EVENT_READ, connection)
        connection.write(connection.challenge)
        if evicted is not None:
            self._rate_limited_log.warn("connection.evicted", peer=evicted.peer)
            self._drop(evicted)

    def _admit(self, connection: Connection, hello: Frame) -> None:
        assert isinstance(hello, Hello)
        reason = self._reject_reason(connection, hello)
        if reason is not None:
            self._reject(connection, reason)
            return
        identity = Identity(instance_of(hello.name), hello.boot)
        connection.admit(identity, hello.channel)
        self._unauthenticated.discard(connection)
        proof = coordinator_proof(self._secret, connection.challenge, hello)
        connection.write(Welcome(proof, self._heartbeat, self._silence))
        if hello.channel is ChannelKind.CONTROL:
            self._half_open[identity] = connection, hello
        else:
            self._join(identity, connection)

    def _reject_reason(self, connection: Connection, hello: Hello) -> RejectReason | None:
        if not is_proven(self._secret, connection.challenge, hello):
            return RejectReason.NOT_PROVEN
        identity = Identity(instance_of(hello.name), hello.boot)
        other = self._state.members.by_instance(identity.instance)
        if other is not None and other.member.name != hello.name:
            return RejectReason.NAME_TAKEN
        if other is not None and is_superseded(hello.boot, other.member.boot):
            return RejectReason.REPLACED
        if hello.channel is ChannelKind.CONTROL:
            is_open = identity in self._half_open or identity in self._channels
            return RejectReason.NAME_TAKEN if is_open else None
        return None if identity in self._half_open else RejectReason.NOT_A_MEMBER

    def _join(self, identity: Identity, messages: Connection) -> None:
        control, hello = self._half_open.pop(identity)
        previous = self._state.members.by_instance(identity.instance)
        if previous is not None:
            self._remove_member(previous.identity, Failure.PEER_LOST, RejectReason.REPLACED)
        self._channels[identity] = {ChannelKind.CONTROL: control, ChannelKind.MESSAGES: messages}
        member = Member(hello.name, identity.instance, identity.boot, hello.host, hello.pid)
        self._state.join(MemberEntry(member, last_seen_at=monotonic()), monotonic())
        self._update_interest(messages)

    def _remove_member(
        self, identity: Identity, failure: Failure, reason: RejectReason | None
    ) -> None:
        """Remove a member from the group and its rounds, then close its connections."""
        self._state.remove_member(identity, failure, monotonic())
        channels = self._channels.pop(identity, {})
        if reason is not None and channels:
            channels[ChannelKind.CONTROL].write(Goodbye(reason))
        for connection in channels.values():
            self._drop(connection)

    def _reject_malformed(self, connection: Connection, malformed: MalformedFrame) -> None:
        peer = self._describe(connection)
        self._rate_limited_log.warn("member.malformed_frame", peer=peer, why=malformed.reason)
        if connection.identity is not None and connection.identity in self._channels:
            self._remove_member(connection.identity, Failure.PEER_LOST, RejectReason.MALFORMED)
        else:
            self._reject(connection, RejectReason.MALFORMED)

    def _reject(self, connection: Connection, reason: RejectReason) -> None:
        self._rate_limited_log.warn("member.rejected", peer=connection.peer, why=str(reason))
        connection.write(Goodbye(reason))
        self._connection_closed(connection)

    def _connection_closed(self, connection: Connection) -> None:
        """Clean up after a closed connection; its member is lost."""
        identity = connection.identity
        if identity is not None and connection in self._channels.get(identity, {}).values():
            self._read_pending_leave(identity)
            self._remove_member(identity, Failure.PEER_LOST, None)
            return
        if identity is not None and self._half_open.get(identity, (None,))[0] is connection:
            del self._half_open[identity]
        self._drop(connection)

    def _read_pending_leave(self, identity: Identity) -> None:
        """The messages channel may close first, with a `Leave` still unread on this one."""
        control = self._channels[identity][ChannelKind.CONTROL]
        if not control.is_broken:
            self._read(control)

    def _drop(self, connection: Connection) -> None:
        self._unauthenticated.discard(connection)
        with suppress(KeyError, ValueError):
            self._selector.unregister(connection)
        connection.close()
        self._flow_control.forget(connection)
        self._update_message_reading()

    # --- writing ---

    def _write(self, identity: Identity, channel: ChannelKind, frame: Frame) -> None:
        connection = self._channels.get(identity, {}).get(channel)
        if connection is None:
            return
        had_backlog = bool(connection.backlog)
        connection.write(frame)
        if connection.backlog and not had_backlog:
            self._update_interest(connection)
        elif had_backlog:
            self._check_backlog(connection)

    def _update_interest(self, connection: Connection) -> None:
        """Register for reading, and for writing while there is a backlog."""
        if connection.is_broken:
            return
        is_read = connection.channel is ChannelKind.CONTROL or self._reads_messages
        events = selectors.EVENT_READ * is_read | selectors.EVENT_WRITE * bool(connection.backlog)
        with suppress(KeyError):
            self._selector.unregister(connection)
        if events:
            self._selector.register(connection, events, connection)
        self._check_backlog(connection)

    def _check_backlog(self, connection: Connection) -> None:
        if connection.channel is ChannelKind.MESSAGES:
            self._flow_control.update(connection, monotonic())
            self._update_message_reading()
        elif connection.identity is not None and len(connection.backlog) > MAX_CONTROL_BACKLOG:
            self._over_limit.add(connection)

    def _update_message_reading(self) -> None:
        """Read messages only while no member's backlog is over the bound."""
        if self._reads_messages is self._flow_control.is_open:
            return
        self._reads_messages = self._flow_control.is_open
        waiting_for = [self._describe(connection) for connection in self._flow_control.blocked]
        event = "messages.resumed" if self._reads_messages else "messages.paused"
        log_event(event, logging.WARNING, waiting_for=waiting_for)
        for channels in tuple(self._channels.values()):
            self._update_interest(channels[ChannelKind.MESSAGES])

    def _describe(self, connection: Connection) -> str:
        entry = self._state.members.get(connection.identity) if connection.identity else None
        return str(entry.seen(monotonic())) if entry else connection.peer

    def _complete_and_send_goodbye(self) -> None:
        self._state.stop(monotonic())
        for channels in self._channels.values():
            channels[ChannelKind.CONTROL].write(Goodbye(RejectReason.STOPPING))

    def _close_everything(self) -> None:
        for channels in self._channels.values():
            for connection in channels.values():
                connection.close()
        halves = [connection for connection, _ in self._half_open.values()]
        for connection in (*self._unauthenticated, *halves):
            connection.close()
        self._listener.close()
        self._selector.close()
        self._waker.close()
        self._woken.close()
