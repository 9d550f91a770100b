"""A process in its group: messages to the others, barriers with them, and leaving in good order."""

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
from tidegate.group.authentication import checked_secret
from tidegate.group.fields import put_name
from tidegate.group.handlers import aside
from tidegate.group.member_table import instance_of
from tidegate.group.membership import JOINING, Handler, Membership
from tidegate.group.session import Call, Session, failed_phases
from tidegate.group.status import (
    NO_SEQUENCE,
    NOBODY,
    Completion,
    Failure,
    Member,
    Require,
    State,
    Timeouts,
)
from tidegate.group.wire import (
    MAX_PAYLOAD,
    BarrierCompletion,
    BarrierRequest,
    Reason,
    Refusal,
)

WHY = {
    Reason.TWICE_IN_ONE_ROUND: "it has arrived already and waits in another call",
    Reason.DRAINING: "it is draining and takes part in nothing new",
    Reason.NOT_A_MEMBER: "it joined after the round had begun; call again when that is over",
    Reason.TOO_MANY: "it waits in too many barriers at once",
}
LOST = "the connection to the coordinator was lost, and the others with it"
SLOW = "its handlers may be too slow for them"


@dataclass(frozen=True, slots=True)
class _Asked:
    """A barrier call, with the seconds its caller grants."""

    barrier: str
    require: Require
    timeouts: Timeouts
    is_own: bool
    """Whether the caller has given them, rather than the group."""

    def request(self, number: int) -> BarrierRequest:
        if not self.is_own:
            return BarrierRequest(number, self.barrier, self.require)
        it = self.timeouts
        waits = (it.rendezvous, it.outbound, it.processing)
        return BarrierRequest(number, self.barrier, self.require, *waits)

    def gathering(self, group: Timeouts) -> float:
        """Seconds within which all have come or it has failed."""
        return self.timeouts.rendezvous if self.is_own else group.rendezvous


class Group:
    """A member of a group, from `join` to `drain` or `close`.

    When the coordinator goes the member looks for it until it is back, and is a new member then:
    messages that were on their way are lost, and barriers that were open have failed.
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
        timeout: float = JOINING,
    ) -> Self:
        """Become a member; waits up to `timeout` for the coordinator to be there.

        The name says who this is: whoever joins under it later takes the place. `handlers` by topic
        get the messages of the others, from the first one on.
        """
        membership = Membership(name, Address.parse(address), checked_secret(secret), handlers)
        membership.begin(timeout)
        return cls(membership)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- the others ---

    @property
    def members(self) -> tuple[Member, ...]:
        """Who is here, this process included, as far as it has heard; by name."""
        return self._membership.members

    @property
    def is_connected(self) -> bool:
        """Whether there is a coordinator at the moment."""
        return self._membership.is_connected

    @property
    def timeouts(self) -> Timeouts:
        """How long the phases of a barrier may take, unless a call says otherwise."""
        return self._membership.timeouts

    def configure(self, timeouts: Timeouts) -> None:
        """Change that for the whole group, from the next call on."""
        self._membership.configure(timeouts)

    def wait_for(self, names: Iterable[str], timeout: float = JOINING) -> None:
        """Wait until all of these have joined; `MembersMissing` names those who have not."""
        self._membership.wait_for(frozenset(names), timeout)

    # --- messages ---

    def on(self, topic: str, handler: Handler) -> None:
        """From now on, give messages of this topic to this handler."""
        self._membership.handlers[topic] = handler

    def publish(self, topic: str, payload: bytes = b"") -> int:
        """Send a message to all others; its place in what this process has sent."""
        return self._post(NOBODY, topic, payload)

    def send(self, member: str, topic: str, payload: bytes = b"") -> int:
        """Send a message to one; its place in what this process has sent."""
        present = [it.name for it in self.members]
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
        """Meet all members that are not draining, with the guarantees that are required.

        `timeout` bounds each phase that is required and the rendezvous, for everybody in the round
        when it is the shortest; without it the group's own apply. All get their completions when
        the phases of all are over, also those that only others require and bound. The completion
        says what came of it; what fails is told there and not raised, except that
        `InboundIncomplete` is about this process alone and `BarrierRefused` about a call that is in
        no round.
        """
        put_name(name)
        timeouts = Timeouts.all(timeout) if isinstance(timeout, int | float) else timeout
        # An unknown flag is refused here; making sure costs nothing for those that are known.
        flags = require if isinstance(require, Require) else Require(require)
        asked = _Asked(name, flags, timeouts or self.timeouts, timeouts is not None)
        session = self._membership.wait_for_session(asked.timeouts.rendezvous)
        if session is None:
            return self._unanswered(asked, Failure.COORDINATOR_STOP)
        with aside():
            completion = self._meet(session, asked)
            self._catch_up(session, asked, completion)
        return completion

    def rendezvous(self, name: str, timeout: float | Timeouts | None = None) -> Completion:
        """Meet all members; nothing is said about messages."""
        return self.barrier(name, require=Require.NOTHING, timeout=timeout)

    def delivery_fence(self, name: str, timeout: float | Timeouts | None = None) -> Completion:
        """Meet all members; whatever was sent to this process before has arrived."""
        return self.barrier(name, require=Require.INBOUND, timeout=timeout)

    def processing_fence(self, name: str, timeout: float | Timeouts | None = None) -> Completion:
        """Meet all members; all that was sent before has arrived and every handler is through."""
        return self.barrier(name, require=Require.INBOUND | Require.PROCESSING, timeout=timeout)

    def _meet(self, session: Session, asked: _Asked) -> Completion:
        began = monotonic()
        try:
            number, call = session.call(asked.request)
        except CoordinatorUnreachable:
            self._membership.check()
            return self._unanswered(asked, Failure.COORDINATOR_STOP)
        if not self._is_answered(call, asked, session.silence):
            if session.forget(number):
                raise NoAnswer(asked.barrier, monotonic() - began)
            call.answered.acquire()  # it comes at the last moment
        answer = call.answer
        if answer is None:
            self._membership.check()
            return self._unanswered(asked, session.failure)
        if isinstance(answer, Refusal):
            why = WHY.get(answer.reason, str(answer.reason))
            raise BarrierRefused(asked.barrier, self.name, why)
        return _completed(asked.barrier, answer, call.offenders)

    def _is_answered(self, call: Call, asked: _Asked, silence: float) -> bool:
        """Whether the answer comes within all bounds of its round, which may be set meanwhile.

        The call may be held up behind messages on its way, and so may the answer: not for longer
        than a member may be silent.
        """
        began, left = monotonic(), 0.0
        while not call.answered.acquire(timeout=min(max(0.0, left), TIMEOUT_MAX)):
            due = max(began + asked.gathering(self.timeouts), call.due)
            left = due + 2 * silence - monotonic()
            if left <= 0:
                return False
        return True

    def _unanswered(self, asked: _Asked, failure: Failure) -> Completion:
        phases = failed_phases(asked.require, failure)
        return Completion(asked.barrier, NO_SEQUENCE, asked.require, *phases)

    def _catch_up(self, session: Session, asked: _Asked, completion: Completion) -> None:
        inbound = completion.inbound
        if inbound.state is not State.SATISFIED:
            return
        began = monotonic()
        if not session.intake.wait_received(inbound.sequence, asked.timeouts.inbound):
            why = LOST if session.over.is_set() else SLOW
            place = (session.intake.received, inbound.sequence, monotonic() - began)
            raise InboundIncomplete(asked.barrier, *place, why)

    # --- going ---

    def drain(self, timeout: float = 60.0) -> bool:
        """Take part in no new round, finish the open ones and the handlers, and leave.

        Whether everything was finished in time; what was not is left behind either way.
        """
        until = monotonic() + timeout
        try:
            with aside():  # a handler that drains does not wait for itself
                return self._membership.drain(timeout) and self._are_handlers_through(until)
        except CoordinatorUnreachable:
            return False
        finally:
            self.close()

    def close(self) -> None:
        """Leave at once, on purpose: what others wait for is declined."""
        self._membership.close()

    def _are_handlers_through(self, until: float) -> bool:
        intake = self._membership.session().intake
        return intake.wait_quiet(intake.received, max(0.0, until - monotonic()))


def _completed(barrier: str, it: BarrierCompletion, spoken_of: Mapping[int, Member]) -> Completion:
    phases = (it.rendezvous, it.inbound, it.outbound, it.processing)
    named = {phase.offender for phase in phases}
    offenders = {instance: who for instance, who in spoken_of.items() if instance in named}
    return Completion(barrier, it.sequence, it.require, *phases, MappingProxyType(offenders))
