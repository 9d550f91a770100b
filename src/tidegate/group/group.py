"""The handle of a member process: messages, barriers, and leaving the group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from threading import TIMEOUT_MAX
from time import monotonic
from types import MappingProxyType
from typing import Self

from tidegate.errors import (
    BarrierRefused,
    CoordinatorUnreachable,
    InboundIncomplete,
    MessageTooLarge,
    NoAnswer,
    UnknownMember,
    listed,
)
from tidegate.group.address import Address
from tidegate.group.coordinator.member_table import instance_of
from tidegate.group.member.handlers import suspended
from tidegate.group.member.membership import JOIN_TIMEOUT, Handler, Membership
from tidegate.group.member.session import BarrierCall, Session, failed_phases
from tidegate.group.protocol.authentication import checked_secret
from tidegate.group.protocol.fields import put_name
from tidegate.group.protocol.wire import (
    MAX_PAYLOAD,
    BarrierCompletion,
    BarrierRequest,
    Refusal,
    RejectReason,
)
from tidegate.group.status import (
    NO_MEMBER,
    NO_SEQUENCE,
    Completion,
    Failure,
    Member,
    Require,
    State,
    Timeouts,
)

REFUSAL_TEXTS = {
    RejectReason.TWICE_IN_ONE_ROUND: "it has already arrived at this barrier in another call",
    RejectReason.DRAINING: "it is draining and joins no new round",
    RejectReason.NOT_A_MEMBER: "it joined after the round had begun; call again after this round",
    RejectReason.TOO_MANY: "it has too many open barrier calls",
}
LOST_TEXT = "the connection to the coordinator was lost, and the remaining messages with it"
SLOW_TEXT = "the handlers of this process may be too slow"


@dataclass(frozen=True, slots=True)
class _BarrierOptions:
    """The parameters of a barrier call."""

    barrier: str
    require: Require
    timeouts: Timeouts
    has_own_timeouts: bool
    """Whether the timeouts were given by the caller rather than the group."""

    def request(self, number: int) -> BarrierRequest:
        if not self.has_own_timeouts:
            return BarrierRequest(number, self.barrier, self.require)
        timeouts = self.timeouts
        waits = (timeouts.rendezvous, timeouts.outbound, timeouts.processing)
        return BarrierRequest(number, self.barrier, self.require, *waits)

    def gathering(self, group: Timeouts) -> float:
        """Seconds within which all members arrive or the rendezvous fails."""
        return self.timeouts.rendezvous if self.has_own_timeouts else group.rendezvous


class Group:
    """A member of a group, from `join` to `drain` or `close`.

    When the connection to the coordinator is lost, the member reconnects until the coordinator is
    back, and joins as a new member: messages in flight are lost and open barriers have failed.
    """

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self.name = membership.name

    @classmethod
    def join(
        cls,
        name: str,
        *,
        address: str,
        secret: bytes,
        handlers: Mapping[str, Handler] | None = None,
        timeout: float = JOIN_TIMEOUT,
    ) -> Self:
        """Join the group; waits up to `timeout` for the coordinator.

        A process that joins later under the same name replaces this one. `handlers` by topic
        receive the messages of other members, from the first one on.
        """
        membership = Membership(name, Address.parse(address), checked_secret(secret), handlers)
        membership.start(timeout)
        return cls(membership)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- membership ---

    @property
    def members(self) -> tuple[Member, ...]:
        """The known members, this process included, sorted by name."""
        return self._membership.members

    @property
    def is_connected(self) -> bool:
        """Whether this process is connected to the coordinator."""
        return self._membership.is_connected

    @property
    def timeouts(self) -> Timeouts:
        """The group's phase timeouts, for calls without their own."""
        return self._membership.timeouts

    def configure(self, timeouts: Timeouts) -> None:
        """Change the timeouts of the whole group, from the next call on."""
        self._membership.configure(timeouts)

    def wait_for(self, names: Iterable[str], timeout: float = JOIN_TIMEOUT) -> None:
        """Wait until all named members have joined; `MembersMissing` names the missing ones."""
        self._membership.wait_for(frozenset(names), timeout)

    # --- messages ---

    def on(self, topic: str, handler: Handler) -> None:
        """Set the handler of a topic."""
        self._membership.handlers[topic] = handler

    def publish(self, topic: str, payload: bytes = b"") -> int:
        """Send a message to all other members; returns its position among the sent messages."""
        return self._post(NO_MEMBER, topic, payload)

    def send(self, member: str, topic: str, payload: bytes = b"") -> int:
        """Send a message to one member; returns its position among the sent messages."""
        present = [each.name for each in self.members]
        if member not in present:
            raise UnknownMember(member, listed(present))
        return self._post(instance_of(member), topic, payload)

    def _post(self, to: int, topic: str, payload: bytes) -> int:
        if len(payload) > MAX_PAYLOAD:
            raise MessageTooLarge(topic, len(payload), MAX_PAYLOAD)
        put_name(topic)
        return self._membership.session().post(to, topic, payload)

    # --- barriers ---

    def barrier(
        self,
        name: str,
        *,
        require: int = Require.INBOUND,
        timeout: float | Timeouts | None = None,
    ) -> Completion:
        """Wait for all members that are not draining, with the required guarantees.

        `timeout` bounds the rendezvous and each required phase; the shortest bound of all callers
        applies to the round. Without it the group's timeouts apply. All callers get their
        completion when all phases of all callers are over. Failures are reported in the completion
        and not raised, except `InboundIncomplete`, which concerns this process alone, and
        `BarrierRefused` for a call that is in no round.
        """
        put_name(name)
        timeouts = Timeouts.all(timeout) if isinstance(timeout, int | float) else timeout
        # The conversion refuses unknown flags; it is skipped for values that are flags already.
        flags = require if isinstance(require, Require) else Require(require)
        options = _BarrierOptions(name, flags, timeouts or self.timeouts, timeouts is not None)
        session = self._membership.wait_for_session(options.timeouts.rendezvous)
        if session is None:
            return self._failed_completion(options, Failure.COORDINATOR_STOP)
        with suspended():
            completion = self._call_barrier(session, options)
            self._wait_inbound(session, options, completion)
        return completion

    def rendezvous(self, name: str, timeout: float | Timeouts | None = None) -> Completion:
        """Wait for all members, without guarantees about messages."""
        return self.barrier(name, require=Require.NOTHING, timeout=timeout)

    def delivery_fence(self, name: str, timeout: float | Timeouts | None = None) -> Completion:
        """Wait for all members; everything sent to this process before has arrived."""
        return self.barrier(name, require=Require.INBOUND, timeout=timeout)

    def processing_fence(self, name: str, timeout: float | Timeouts | None = None) -> Completion:
        """Wait for all members; everything sent before has arrived and all handlers have run."""
        return self.barrier(name, require=Require.INBOUND | Require.PROCESSING, timeout=timeout)

    def _call_barrier(self, session: Session, options: _BarrierOptions) -> Completion:
        began = monotonic()
        try:
            number, call = session.call(options.request)
        except CoordinatorUnreachable:
            self._membership.check()
            return self._failed_completion(options, Failure.COORDINATOR_STOP)
        if not self._wait_answer(call, options, session.silence):
            if session.forget(number):
                raise NoAnswer(options.barrier, monotonic() - began)
            call.answered.acquire()  # the answer is being stored right now
        answer = call.answer
        if answer is None:
            self._membership.check()
            return self._failed_completion(options, session.failure)
        if isinstance(answer, Refusal):
            why = REFUSAL_TEXTS.get(answer.reason, str(answer.reason))
            raise BarrierRefused(options.barrier, self.name, why)
        return _completed(options.barrier, answer, call.offenders)

    def _wait_answer(self, call: BarrierCall, options: _BarrierOptions, silence: float) -> bool:
        """Whether the answer arrives within all bounds of its round, which may be set meanwhile.

        The call and its answer may queue behind messages, each for at most the silence bound.
        """
        began, left = monotonic(), 0.0
        while not call.answered.acquire(timeout=min(max(0.0, left), TIMEOUT_MAX)):
            due = max(began + options.gathering(self.timeouts), call.due)
            left = due + 2 * silence - monotonic()
            if left <= 0:
                return False
        return True

    def _failed_completion(self, options: _BarrierOptions, failure: Failure) -> Completion:
        phases = failed_phases(options.require, failure)
        return Completion(options.barrier, NO_SEQUENCE, options.require, *phases)

    def _wait_inbound(
        self, session: Session, options: _BarrierOptions, completion: Completion
    ) -> None:
        inbound = completion.inbound
        if inbound.state is not State.SATISFIED:
            return
        began = monotonic()
        if not session.inbound.wait_received(inbound.sequence, options.timeouts.inbound):
            why = LOST_TEXT if session.ended.is_set() else SLOW_TEXT
            progress = (session.inbound.received, inbound.sequence, monotonic() - began)
            raise InboundIncomplete(options.barrier, *progress, why)

    # --- leaving ---

    def drain(self, timeout: float = 60.0) -> bool:
        """Join no new round, finish the open ones and the handlers, and leave.

        Returns whether everything was finished in time; the process leaves either way.
        """
        until = monotonic() + timeout
        try:
            with suspended():  # a handler that calls drain does not wait for itself
                return self._membership.drain(timeout) and self._wait_handlers(until)
        except CoordinatorUnreachable:
            return False
        finally:
            self.close()

    def close(self) -> None:
        """Leave at once, on purpose: pending acknowledgements are declined."""
        self._membership.close()

    def _wait_handlers(self, until: float) -> bool:
        inbound = self._membership.session().inbound
        return inbound.wait_processed(inbound.received, max(0.0, until - monotonic()))


def _completed(
    barrier: str, frame: BarrierCompletion, described: Mapping[int, Member]
) -> Completion:
    phases = (frame.rendezvous, frame.inbound, frame.outbound, frame.processing)
    named = {phase.offender for phase in phases}
    offenders = {instance: member for instance, member in described.items() if instance in named}
    return Completion(barrier, frame.sequence, frame.require, *phases, MappingProxyType(offenders))
