"""One session of a member: two connections to the coordinator, and the open barrier calls.

It has two threads. One reads messages and queues them for the handlers; it may wait for space in
the queue. The other reads completions and acknowledgement requests and exchanges heartbeats; it
waits for nothing else, so an acknowledgement never waits for the caller that it releases.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from struct import pack
from threading import Event, Lock, Thread
from time import monotonic

from tidegate.errors import CoordinatorUnreachable, MalformedFrame
from tidegate.group.log_events import log
from tidegate.group.member.handlers import Handlers, Message
from tidegate.group.member.handshake import Applicant, OpenChannel, open_channel
from tidegate.group.member.inbound import InboundMessages
from tidegate.group.protocol.framing import READ_SIZE
from tidegate.group.protocol.wire import (
    AckRequest,
    AckResponse,
    AckType,
    BarrierCompletion,
    BarrierRequest,
    ChannelKind,
    Configure,
    Delivered,
    Drain,
    Frame,
    Goodbye,
    Heartbeat,
    Leave,
    MemberInfo,
    Posted,
    Refusal,
    RejectReason,
)
from tidegate.group.status import Failure, Member, PhaseStatus, Require, State

SEND_TIMEOUT = 30.0
"""Seconds after which a blocked write to the coordinator fails."""
LEAVE_TIMEOUT = 3.0
"""Seconds for which a leaving process waits until the coordinator has read its messages."""

LOST_REASONS = {RejectReason.SILENT, RejectReason.TOO_SLOW, RejectReason.MALFORMED}
"""Reasons for which the coordinator removes this process and keeps running."""


@dataclass(slots=True)
class BarrierCall:
    """A barrier call that waits for its answer."""

    answer: BarrierCompletion | Refusal | None = None
    """None if the session has ended without one."""
    offenders: Mapping[int, Member] = field(default_factory=dict)
    """The members that the answer names, as they were at that time."""
    answered: Lock = field(default_factory=Lock)
    due: float = 0.0
    """The latest known deadline of the phases of its round."""

    def __post_init__(self) -> None:
        self.answered.acquire()

    def complete(self, answer: BarrierCompletion | Refusal | None) -> None:
        """Store the answer and wake the caller; called once."""
        self.answer = answer
        self.answered.release()


class Session:
    """See the module. `on_update` receives changes of members and timeouts."""

    def __init__(
        self,
        applicant: Applicant,
        timeout: float,
        handlers: Handlers,
        on_update: Callable[[MemberInfo | Configure], None],
    ) -> None:
        self._control = open_channel(applicant, ChannelKind.CONTROL, timeout)
        try:
            self._messages = open_channel(applicant, ChannelKind.MESSAGES, timeout)
        except BaseException:
            self._control.socket.close()
            raise
        self._applicant = applicant
        self._on_update = on_update
        self._control_lock, self._messages_lock = Lock(), Lock()
        self._acks_lock = Lock()
        self._pending_acks: list[AckRequest] = []
        self._calls: dict[int, BarrierCall] = {}
        self._described: dict[int, Member] = {}
        """Members described since the last answer; those that the next one names are among them."""
        self._idle = Event()
        self._call_numbers = count(1)
        self._sent = 0
        self._last_heartbeat_at = self._last_received_at = monotonic()
        self._is_leaving = self._is_broken = False
        self.ended = Event()
        self.end_reason: RejectReason | None = None
        """Why the coordinator ended the session, if it sent a reason."""
        self.silence = self._control.welcome.silence
        self.inbound = InboundMessages(handlers, self._send_due_acks)
        self._threads = [
            Thread(target=self._read_control, name="group control", daemon=True),
            Thread(target=self._read_messages, name="group messages", daemon=True),
        ]

    def start(self) -> None:
        """Start the reader threads."""
        heartbeat = self._control.welcome.heartbeat
        _set_timeouts(self._control.socket, receive=heartbeat, send=SEND_TIMEOUT)
        _set_timeouts(self._messages.socket, receive=0.0, send=SEND_TIMEOUT)
        for thread in self._threads:
            thread.start()

    @property
    def failure(self) -> Failure:
        """The failure of calls that were open when the session ended."""
        return Failure.PEER_LOST if self.end_reason in LOST_REASONS else Failure.COORDINATOR_STOP

    # --- sending ---

    def post(self, to: int, topic: str, payload: bytes) -> int:
        """Send a message; returns its position among the sent messages."""
        with self._messages_lock:
            self._sent += 1
            self._write(self._messages, Posted(self._sent, to, topic, payload))
            return self._sent

    def call(self, frame: Callable[[int], BarrierRequest]) -> tuple[int, BarrierCall]:
        """Arrive at a barrier, behind all messages sent before."""
        number = next(self._call_numbers)
        request = frame(number)
        call = BarrierCall()
        self._calls[number] = call
        self._idle.clear()  # after the line above, else an answer to another call sets it again
        if self.ended.is_set():
            self._fail_calls()
        else:
            with self._messages_lock:
                self._write(self._messages, request)
        return number, call

    def forget(self, number: int) -> bool:
        """Give up waiting for an answer; whether it has not arrived meanwhile."""
        is_open = self._calls.pop(number, None) is not None
        if not self._calls:
            self._idle.set()
        return is_open

    def wait_idle(self, timeout: float) -> bool:
        """Whether all barrier calls are answered in time."""
        return not self._calls or self._idle.wait(timeout)

    def send_control(self, frame: Drain | Configure) -> None:
        """Send a frame on the control channel."""
        with self._control_lock:
            self._write(self._control, frame)

    def leave(self) -> None:
        """Leave on purpose, behind all sent messages; pending acknowledgements are declined."""
        with self._acks_lock:
            pending, self._pending_acks = self._pending_acks, []
            self._is_leaving = True
        with suppress(CoordinatorUnreachable):
            for request in pending:
                self._respond(request, success=False)
            if not self._send_leave(monotonic() + LEAVE_TIMEOUT):
                with self._control_lock:
                    self._write(self._control, Leave())
        self.end(None)

    def _send_leave(self, until: float) -> bool:
        """Whether the coordinator has read all messages in time and closed the connection."""
        if not self._messages_lock.acquire(timeout=LEAVE_TIMEOUT):
            return False
        try:
            _set_timeouts(self._messages.socket, receive=0.0, send=max(0.001, until - monotonic()))
            self._messages.socket.sendall(Leave().pack())
        except OSError:
            return False
        finally:
            self._messages_lock.release()
        return self.ended.wait(max(0.0, until - monotonic()))

    def end(self, reason: RejectReason | None) -> None:
        """End the session and fail its open calls."""
        if self.ended.is_set():
            return
        self.end_reason = reason
        self.ended.set()
        self._shutdown_sockets()
        self.inbound.close()
        self._fail_calls()

    def close(self) -> None:
        """Close the connections, after the reader threads have ended."""
        for thread in self._threads:
            if thread.is_alive():
                thread.join(SEND_TIMEOUT)
        self._control.socket.close()
        self._messages.socket.close()

    # --- receiving ---

    def _read_control(self) -> None:
        channel = self._control
        try:
            for frame in channel.early:
                self._dispatch(frame)
            while not self.ended.is_set():
                self._receive(channel)
        except CoordinatorUnreachable:
            self._read_final_frames(channel)
        except (OSError, EOFError, MalformedFrame) as error:
            self._connection_lost(error)
        finally:
            self.end(None)

    def _read_final_frames(self, channel: OpenChannel) -> None:
        """After a failed write: the coordinator's goodbye may still be unread."""
        with suppress(OSError, MalformedFrame):
            while data := channel.socket.recv(READ_SIZE):
                for frame in channel.frames.feed(data):
                    self._dispatch(frame)

    def _receive(self, channel: OpenChannel) -> None:
        try:
            data = channel.socket.recv(READ_SIZE)
        except BlockingIOError:
            data = None
        now = monotonic()
        if data is not None:
            if not data:
                raise EOFError("the coordinator has closed the connection")
            self._last_received_at = now
            for frame in channel.frames.feed(data):
                self._dispatch(frame)
        elif now - self._last_received_at > self.silence:
            raise EOFError(f"the coordinator has been silent for {self.silence:g} s")
        if now - self._last_heartbeat_at >= channel.welcome.heartbeat:
            self._last_heartbeat_at = now
            self.inbound.warn(self.silence)
            with self._control_lock:
                self._write(channel, Heartbeat())

    def _dispatch(self, frame: Frame) -> None:
        match frame:
            case BarrierCompletion() | Refusal():
                self._answer(frame)
            case AckRequest():
                self._extend_deadline(frame)
                with self._acks_lock:
                    self._pending_acks.append(frame)
                self._send_due_acks()
            case MemberInfo():
                self._described[frame.instance] = frame.member
                self._on_update(frame)
            case Configure():
                self._on_update(frame)
            case Heartbeat():
                self._described.clear()  # an answer follows directly on the members it names
            case Goodbye():
                self.end(frame.reason)
            case _:
                raise MalformedFrame(f"{type(frame).__name__} is not for a member")

    def _extend_deadline(self, frame: AckRequest) -> None:
        """Other callers may allow more time; the answer comes after their phases too."""
        call = self._calls.get(frame.call)
        if call is not None:
            call.due = max(call.due, monotonic() + frame.within)

    def _answer(self, frame: BarrierCompletion | Refusal) -> None:
        call = self._calls.pop(frame.call, None)
        if call is not None:
            call.offenders, self._described = self._described, {}
            call.complete(frame)
        if not self._calls:
            self._idle.set()

    def _read_messages(self) -> None:
        channel = self._messages
        try:
            for frame in channel.early:
                self._receive_message(frame)
            while data := channel.socket.recv(READ_SIZE):
                for frame in channel.frames.feed(data):
                    self._receive_message(frame)
            error: Exception = EOFError("the coordinator has closed the connection")
        except Exception as caught:  # noqa: BLE001  a session that cannot read must end
            error = caught
        # A goodbye on the control channel carries the reason.
        self.ended.wait(self._control.welcome.heartbeat)
        self._connection_lost(error)

    def _receive_message(self, frame: Frame) -> None:
        if not isinstance(frame, Delivered) or frame.sequence != self.inbound.received + 1:
            raise MalformedFrame(f"{frame} does not follow message {self.inbound.received}")
        positions = (frame.sequence, frame.sent)
        self.inbound.put(Message(frame.sender, frame.topic, frame.payload, *positions))

    # --- acknowledgements ---

    def _send_due_acks(self) -> None:
        if not self._pending_acks:
            return
        with self._acks_lock:
            due = [request for request in self._pending_acks if self._is_due(request)]
            self._pending_acks = [request for request in self._pending_acks if request not in due]
        with suppress(CoordinatorUnreachable):
            for request in due:
                self._respond(request, success=not self._is_leaving)

    def _is_due(self, request: AckRequest) -> bool:
        if self._is_leaving:
            return True
        if request.ack is AckType.OUTBOUND:
            return self.inbound.received >= request.target
        return self.inbound.is_processed(request.target)

    def _respond(self, request: AckRequest, *, success: bool) -> None:
        is_outbound = request.ack is AckType.OUTBOUND
        observed = self.inbound.received if is_outbound else self.inbound.processed
        where = (request.sequence, request.round, request.generation, request.ack)
        with self._control_lock:
            self._write(self._control, AckResponse(*where, observed, success))

    # --- failure ---

    def _write(self, channel: OpenChannel, frame: Frame) -> None:
        try:
            channel.socket.sendall(frame.pack())
        except OSError as error:
            self._connection_lost(error)
            reason = "it does not read any more" if _is_timeout(error) else str(error)
            raise CoordinatorUnreachable(str(self._applicant.address), reason) from error

    def _connection_lost(self, error: BaseException) -> None:
        """Shut the connections; the control thread ends the session after reading the rest."""
        if not (self._is_broken or self.ended.is_set() or self._is_leaving):
            name, address = self._applicant.name, self._applicant.address
            log.warning("%s lost its connection to the group at %s: %s", name, address, error)
        self._is_broken = True
        self._shutdown_sockets()

    def _shutdown_sockets(self) -> None:
        for channel in (self._control, self._messages):
            with suppress(OSError):
                channel.socket.shutdown(socket.SHUT_RDWR)

    def _fail_calls(self) -> None:
        """Fail the open calls: the coordinator has stopped or has removed this process."""
        for number in tuple(self._calls):
            call = self._calls.pop(number, None)
            if call is not None:
                call.complete(None)
        self._idle.set()


def failed_phases(
    require: Require, failure: Failure
) -> tuple[PhaseStatus, PhaseStatus, PhaseStatus, PhaseStatus]:
    """The phases of a barrier that failed as a whole."""
    failed = PhaseStatus(State.FAILED, failure)
    inbound, outbound, processing = (
        failed if flag & require else PhaseStatus()
        for flag in (Require.INBOUND, Require.OUTBOUND, Require.PROCESSING)
    )
    return failed, inbound, outbound, processing


def _is_timeout(error: OSError) -> bool:
    return isinstance(error, BlockingIOError)


def _set_timeouts(connection: socket.socket, receive: float, send: float) -> None:
    """Set the timeouts of blocking calls in seconds; 0 means none."""
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(receive))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(send))


def _timeval(seconds: float) -> bytes:
    whole = int(seconds)
    return pack("ll", whole, int((seconds - whole) * 1_000_000))
