"""One life of a member in its group: two connections, and those who wait for answers.

Two threads belong to it. One reads messages and puts them where the handlers find them; it may have
to wait for room. The other reads verdicts and requests for acknowledgements, beats the heart and
listens for the coordinator's; it waits for nothing else, so an acknowledgement never waits for the
caller that it releases.
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
from tidegate.group.framing import READ_SIZE
from tidegate.group.handlers import Handlers, Message
from tidegate.group.handshake import Applicant, OpenChannel, open_channel
from tidegate.group.inbound import InboundMessages
from tidegate.group.log_events import log
from tidegate.group.status import Failure, Member, PhaseStatus, Require, State
from tidegate.group.wire import (
    About,
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
    Posted,
    Reason,
    Refusal,
)

SEND_BOUND = 30.0
"""Seconds for which the coordinator may take nothing that this process writes."""
LEAVING = 3.0
"""Seconds for which a process that leaves waits until its messages have been taken."""

GIVEN_UP = {Reason.SILENT, Reason.TOO_SLOW, Reason.MALFORMED}
"""Ends of a session by which the coordinator goes on and this process is lost to it."""


@dataclass(slots=True)
class Call:
    """A barrier call that waits for its answer."""

    answer: BarrierCompletion | Refusal | None = None
    """Nothing if there will be none, for the session is over."""
    offenders: Mapping[int, Member] = field(default_factory=dict)
    """Those whom the answer names, as they were then."""
    answered: Lock = field(default_factory=Lock)
    due: float = 0.0
    """When the phases that its round waits for are over at the latest, as far as was told."""

    def __post_init__(self) -> None:
        self.answered.acquire()

    def give(self, answer: BarrierCompletion | Refusal | None) -> None:
        """The answer, once."""
        self.answer = answer
        self.answered.release()


class Session:
    """See the module. `heard` gets what the coordinator says of the group."""

    def __init__(
        self,
        who: Applicant,
        timeout: float,
        handlers: Handlers,
        heard: Callable[[About | Configure], None],
    ) -> None:
        self._control = open_channel(who, ChannelKind.CONTROL, timeout)
        try:
            self._messages = open_channel(who, ChannelKind.MESSAGES, timeout)
        except BaseException:
            self._control.socket.close()
            raise
        self._who = who
        self._heard = heard
        self._sending_control, self._sending_messages = Lock(), Lock()
        self._asking = Lock()
        self._asked: list[AckRequest] = []
        self._calls: dict[int, Call] = {}
        self._told: dict[int, Member] = {}
        """Who was spoken of since the last answer: those whom the next one names are among them."""
        self._idle = Event()
        self._numbers = count(1)
        self._sent = 0
        self._beaten_at = self._heard_at = monotonic()
        self._is_leaving = self._is_broken = False
        self.over = Event()
        self.ended_by: Reason | None = None
        """Why the coordinator ended it, if it said so."""
        self.silence = self._control.welcome.silence
        self.intake = InboundMessages(handlers, self._answer_what_is_due)
        self._threads = [
            Thread(target=self._listen, name="group control", daemon=True),
            Thread(target=self._read_messages, name="group messages", daemon=True),
        ]

    def start(self) -> None:
        """Begin to listen."""
        _bound(self._control.socket, receive=self._control.welcome.heartbeat, send=SEND_BOUND)
        _bound(self._messages.socket, receive=0.0, send=SEND_BOUND)
        for thread in self._threads:
            thread.start()

    @property
    def failure(self) -> Failure:
        """What has become of the calls that were open when it ended."""
        return Failure.PEER_LOST if self.ended_by in GIVEN_UP else Failure.COORDINATOR_STOP

    # --- what the process says ---

    def post(self, to: int, topic: str, payload: bytes) -> int:
        """Send a message; its place in what this process has sent."""
        with self._sending_messages:
            self._sent += 1
            self._write(self._messages, Posted(self._sent, to, topic, payload))
            return self._sent

    def call(self, frame: Callable[[int], BarrierRequest]) -> tuple[int, Call]:
        """Arrive at a barrier, behind everything that was sent before."""
        number = next(self._numbers)
        request = frame(number)
        call = Call()
        self._calls[number] = call
        self._idle.clear()  # behind the line above, else an answer to another call undoes it
        if self.over.is_set():
            self._end_calls()
        else:
            with self._sending_messages:
                self._write(self._messages, request)
        return number, call

    def forget(self, number: int) -> bool:
        """Nobody waits for this answer any more; whether it has not come at the last moment."""
        is_open = self._calls.pop(number, None) is not None
        if not self._calls:
            self._idle.set()
        return is_open

    def wait_idle(self, timeout: float) -> bool:
        """Whether nobody waits in a barrier any more, in time."""
        return not self._calls or self._idle.wait(timeout)

    def say(self, frame: Drain | Configure) -> None:
        """Say something besides messages and barriers."""
        with self._sending_control:
            self._write(self._control, frame)

    def leave(self) -> None:
        """Go on purpose, behind all that was sent: decline what is asked, and close."""
        with self._asking:
            asked, self._asked = self._asked, []
            self._is_leaving = True
        with suppress(CoordinatorUnreachable):
            for request in asked:
                self._respond(request, success=False)
            if not self._leave_behind_messages(monotonic() + LEAVING):
                with self._sending_control:
                    self._write(self._control, Leave())
        self.end(None)

    def _leave_behind_messages(self, until: float) -> bool:
        """Whether the coordinator has taken all messages in time, and closed the connection."""
        if not self._sending_messages.acquire(timeout=LEAVING):
            return False
        try:
            _bound(self._messages.socket, receive=0.0, send=max(0.001, until - monotonic()))
            self._messages.socket.sendall(Leave().pack())
        except OSError:
            return False
        finally:
            self._sending_messages.release()
        return self.over.wait(max(0.0, until - monotonic()))

    def end(self, reason: Reason | None) -> None:
        """It is over; whoever waits is told."""
        if self.over.is_set():
            return
        self.ended_by = reason
        self.over.set()
        self._shut()
        self.intake.close()
        self._end_calls()

    def close(self) -> None:
        """Give the connections back, once nobody listens to them."""
        for thread in self._threads:
            if thread.is_alive():
                thread.join(SEND_BOUND)
        self._control.socket.close()
        self._messages.socket.close()

    # --- what the coordinator says ---

    def _listen(self) -> None:
        channel = self._control
        try:
            for frame in channel.early:
                self._obey(frame)
            while not self.over.is_set():
                self._hear(channel)
        except CoordinatorUnreachable:
            self._hear_last_words(channel)
        except (OSError, EOFError, MalformedFrame) as trouble:
            self._lost(trouble)
        finally:
            self.end(None)

    def _hear_last_words(self, channel: OpenChannel) -> None:
        """Writing has failed; why the coordinator has gone may still be there to read."""
        with suppress(OSError, MalformedFrame):
            while data := channel.socket.recv(READ_SIZE):
                for frame in channel.frames.feed(data):
                    self._obey(frame)

    def _hear(self, channel: OpenChannel) -> None:
        try:
            data = channel.socket.recv(READ_SIZE)
        except BlockingIOError:
            data = None
        now = monotonic()
        if data is not None:
            if not data:
                raise EOFError("the coordinator has closed the connection")
            self._heard_at = now
            for frame in channel.frames.feed(data):
                self._obey(frame)
        elif now - self._heard_at > self.silence:
            raise EOFError(f"the coordinator has been silent for {self.silence:g} s")
        if now - self._beaten_at >= channel.welcome.heartbeat:
            self._beaten_at = now
            self.intake.warn(self.silence)
            with self._sending_control:
                self._write(channel, Heartbeat())

    def _obey(self, frame: Frame) -> None:
        match frame:
            case BarrierCompletion() | Refusal():
                self._answer(frame)
            case AckRequest():
                self._note_how_long(frame)
                with self._asking:
                    self._asked.append(frame)
                self._answer_what_is_due()
            case About():
                self._told[frame.instance] = frame.member
                self._heard(frame)
            case Configure():
                self._heard(frame)
            case Heartbeat():
                self._told.clear()  # an answer follows at once on those whom it names
            case Goodbye():
                self.end(frame.reason)
            case _:
                raise MalformedFrame(f"{type(frame).__name__} is not for a member")

    def _note_how_long(self, frame: AckRequest) -> None:
        """Others may grant more time than the caller would; it gets its answer behind theirs."""
        call = self._calls.get(frame.call)
        if call is not None:
            call.due = max(call.due, monotonic() + frame.within)

    def _answer(self, frame: BarrierCompletion | Refusal) -> None:
        call = self._calls.pop(frame.call, None)
        if call is not None:
            call.offenders, self._told = self._told, {}
            call.give(frame)
        if not self._calls:
            self._idle.set()

    def _read_messages(self) -> None:
        channel = self._messages
        try:
            for frame in channel.early:
                self._take_in(frame)
            while data := channel.socket.recv(READ_SIZE):
                for frame in channel.frames.feed(data):
                    self._take_in(frame)
            trouble: Exception = EOFError("the coordinator has closed the connection")
        except Exception as caught:  # noqa: BLE001  who reads no more must not look alive
            trouble = caught
        # A goodbye on the other channel says more than the end of this one.
        self.over.wait(self._control.welcome.heartbeat)
        self._lost(trouble)

    def _take_in(self, frame: Frame) -> None:
        if not isinstance(frame, Delivered) or frame.sequence != self.intake.received + 1:
            raise MalformedFrame(f"{frame} does not follow message {self.intake.received}")
        place = (frame.sequence, frame.sent)
        self.intake.put(Message(frame.sender, frame.topic, frame.payload, *place))

    # --- acknowledgements ---

    def _answer_what_is_due(self) -> None:
        if not self._asked:
            return
        with self._asking:
            due = [request for request in self._asked if self._is_due(request)]
            self._asked = [request for request in self._asked if request not in due]
        with suppress(CoordinatorUnreachable):
            for request in due:
                self._respond(request, success=not self._is_leaving)

    def _is_due(self, request: AckRequest) -> bool:
        if self._is_leaving:
            return True
        if request.ack is AckType.OUTBOUND:
            return self.intake.received >= request.target
        return self.intake.is_quiet(request.target)

    def _respond(self, request: AckRequest, *, success: bool) -> None:
        is_outbound = request.ack is AckType.OUTBOUND
        observed = self.intake.received if is_outbound else self.intake.processed
        where = (request.sequence, request.round, request.generation, request.ack)
        with self._sending_control:
            self._write(self._control, AckResponse(*where, observed, success))

    # --- the end ---

    def _write(self, channel: OpenChannel, frame: Frame) -> None:
        try:
            channel.socket.sendall(frame.pack())
        except OSError as trouble:
            self._lost(trouble)
            reason = "it takes nothing any more" if _is_timeout(trouble) else str(trouble)
            raise CoordinatorUnreachable(str(self._who.address), reason) from trouble

    def _lost(self, trouble: BaseException) -> None:
        """Use the connections no more; the listener ends the session when it has read the rest."""
        if not (self._is_broken or self.over.is_set() or self._is_leaving):
            log.warning("%s has lost the group at %s: %s", self._who.name, self._who.address,
                        trouble)  # fmt: skip
        self._is_broken = True
        self._shut()

    def _shut(self) -> None:
        for channel in (self._control, self._messages):
            with suppress(OSError):
                channel.socket.shutdown(socket.SHUT_RDWR)

    def _end_calls(self) -> None:
        """Nobody will answer these: the coordinator has gone, or has given this process up."""
        for number in tuple(self._calls):
            call = self._calls.pop(number, None)
            if call is not None:
                call.give(None)
        self._idle.set()


def failed_phases(
    require: Require, failure: Failure
) -> tuple[PhaseStatus, PhaseStatus, PhaseStatus, PhaseStatus]:
    """What a caller gets of a barrier that failed as a whole."""
    failed = PhaseStatus(State.FAILED, failure)
    inbound, outbound, processing = (
        failed if flag & require else PhaseStatus()
        for flag in (Require.INBOUND, Require.OUTBOUND, Require.PROCESSING)
    )
    return failed, inbound, outbound, processing


def _is_timeout(trouble: OSError) -> bool:
    return isinstance(trouble, BlockingIOError)


def _bound(connection: socket.socket, receive: float, send: float) -> None:
    """Let blocking calls end after so many seconds, 0 for never."""
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(receive))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(send))


def _timeval(seconds: float) -> bytes:
    whole = int(seconds)
    return pack("ll", whole, int((seconds - whole) * 1_000_000))
