"""The rules of one round, with plain values and a test clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.group.coordinator.round import Identity, RequestAck, Round, SlowPhase, Stage
from tidegate.group.protocol.wire import AckType
from tidegate.group.status import (
    INBOUND,
    NO_MEMBER,
    NO_SEQUENCE,
    OUTBOUND,
    PROCESSING,
    Failure,
    Phase,
    PhaseStatus,
    Require,
    State,
    Timeouts,
)

A, B, C = (Identity(number, bytes([number]) * 16) for number in (1, 2, 3))
NOTHING = Require.NOTHING
EVERYTHING = INBOUND | OUTBOUND | PROCESSING
BOUNDS = Timeouts(rendezvous=30, inbound=30, outbound=30, processing=60)
LEADING = {A: 10, B: 20, C: 30}


def opened(*members: Identity) -> Round:
    return Round(1, "night", members or (A, B, C), lambda identity: LEADING.get(identity, 0))


def arrive(
    round_: Round,
    identity: Identity,
    require: Require = NOTHING,
    now: float = 0.0,
    timeouts: Timeouts = BOUNDS,
) -> list[RequestAck]:
    return round_.arrive(identity, identity.instance, require, timeouts, sent=5, now=now)


def states(round_: Round, identity: Identity) -> list[State]:
    return [status.state for status in round_.outcome_for(identity)]


def confirm(round_: Round, identity: Identity, ack: AckType, *, success: bool = True) -> None:
    round_.acknowledge(
        identity, round_.generation, ack, observed=LEADING[identity], success=success
    )


def acknowledging(require: Require = EVERYTHING) -> Round:
    round_ = opened()
    for identity in (A, B, C):
        arrive(round_, identity, require)
    return round_


# --- the good case ---------------------------------------------------------------------------


def test_a_rendezvous_is_settled_by_the_last_arrival() -> None:
    round_ = opened()
    for identity in (A, B):
        assert arrive(round_, identity) == []
        assert not round_.is_settled
    assert arrive(round_, C) == []

    assert round_.is_settled
    for identity in (A, B, C):
        assert states(round_, identity) == [State.SATISFIED, *[State.NOT_REQUESTED] * 3]


def test_each_caller_gets_the_phases_it_requires_and_no_others() -> None:
    round_ = opened()
    arrive(round_, A, INBOUND)
    arrive(round_, B, OUTBOUND)
    asked = arrive(round_, C, NOTHING)

    assert asked == [
        RequestAck(identity, AckType.OUTBOUND, LEADING[identity], call=identity.instance, within=30)
        for identity in (A, B, C)
    ]
    for identity in (A, B, C):
        confirm(round_, identity, AckType.OUTBOUND)
    good, no = State.SATISFIED, State.NOT_REQUESTED
    assert states(round_, A) == [good, good, no, no]
    assert states(round_, B) == [good, no, good, no]
    assert states(round_, C) == [good, no, no, no]


def test_sequences_are_positions_in_the_streams_of_the_caller() -> None:
    round_ = acknowledging()
    for identity in (A, B, C):
        for ack in AckType:
            confirm(round_, identity, ack)

    assert [status.sequence for status in round_.outcome_for(B)] == [20, 20, 5, 20]


def test_a_phase_not_requested_has_no_sequence_and_no_offender() -> None:
    round_ = opened(A)
    arrive(round_, A)

    assert round_.outcome_for(A)[Phase.OUTBOUND] == PhaseStatus(
        State.NOT_REQUESTED, Failure.NONE, NO_MEMBER, NO_SEQUENCE
    )


def test_a_round_is_settled_by_the_last_acknowledgement_of_the_last_phase() -> None:
    round_ = acknowledging()
    for identity in (A, B, C):
        confirm(round_, identity, AckType.PROCESSING)
    for identity in (A, B):
        confirm(round_, identity, AckType.OUTBOUND)
    assert round_.stage is Stage.ACKNOWLEDGING
    confirm(round_, C, AckType.OUTBOUND)

    assert round_.is_settled
    assert states(round_, A) == [State.SATISFIED] * 4


# --- members that go -------------------------------------------------------------------------


def test_a_member_lost_before_it_arrives_fails_everything_at_once() -> None:
    round_ = opened()
    arrive(round_, A, EVERYTHING)
    round_.drop(C, Failure.PEER_LOST, now=1)

    assert round_.is_settled
    for status in round_.outcome_for(A):
        found = (status.state, status.failure, status.offender)
        assert found == (State.FAILED, Failure.PEER_LOST, C.instance)


def test_a_member_that_drains_before_it_arrives_downgrades_the_rendezvous() -> None:
    round_ = opened()
    arrive(round_, A, INBOUND)
    round_.drain(C, now=1)
    assert not round_.is_settled
    arrive(round_, B)

    rendezvous, inbound, *_ = round_.outcome_for(A)
    assert (rendezvous.state, rendezvous.failure) == (State.DOWNGRADED, Failure.PEER_DRAINING)
    assert rendezvous.offender == C.instance
    assert inbound.state is State.SATISFIED


def test_a_member_that_drains_before_it_arrives_downgrades_what_it_could_not_confirm() -> None:
    round_ = opened()
    arrive(round_, A, EVERYTHING)
    arrive(round_, B, PROCESSING)
    round_.drain(C, now=1)
    for identity in (A, B):
        for ack in AckType:
            confirm(round_, identity, ack)

    good, less = State.SATISFIED, State.DOWNGRADED
    assert states(round_, A) == [less, good, less, less]
    assert round_.outcome_for(B)[Phase.PROCESSING].offender == C.instance


def test_the_last_pending_member_settles_a_round_by_draining() -> None:
    round_ = opened()
    arrive(round_, A)
    arrive(round_, B)
    round_.drain(C, now=1)

    assert round_.is_settled


def test_a_member_that_drains_after_arriving_finishes_the_round() -> None:
    round_ = acknowledging()
    round_.drain(C, now=1)
    for identity in (A, B, C):
        for ack in AckType:
            confirm(round_, identity, ack)

    assert states(round_, A) == [State.SATISFIED] * 4


def test_a_member_lost_while_it_owes_acknowledgements_fails_those_phases_only() -> None:
    round_ = acknowledging()
    confirm(round_, C, AckType.OUTBOUND)
    round_.drop(C, Failure.PEER_LOST, now=1)
    for identity in (A, B):
        for ack in AckType:
            confirm(round_, identity, ack)

    good, failed = State.SATISFIED, State.FAILED
    assert states(round_, A) == [good, good, good, failed]
    assert round_.outcome_for(A)[Phase.PROCESSING].offender == C.instance
    assert [identity for identity, *_ in round_.callers] == [A, B]


def test_a_member_lost_between_its_arrival_and_the_last_one_has_met_but_cannot_confirm() -> None:
    round_ = opened()
    arrive(round_, A, EVERYTHING)
    round_.drop(A, Failure.PEER_LOST, now=1)
    assert round_.is_settled  # no caller is left

    round_ = opened()
    arrive(round_, A, EVERYTHING)
    arrive(round_, B, EVERYTHING)
    round_.drop(A, Failure.PEER_LOST, now=1)
    asked = arrive(round_, C, EVERYTHING)
    assert {ask.identity for ask in asked} == {B, C}
    for identity in (B, C):
        for ack in AckType:
            confirm(round_, identity, ack)
    assert states(round_, B) == [State.SATISFIED, State.SATISFIED, State.FAILED, State.FAILED]


def test_a_member_that_declines_is_the_offender_like_a_draining_one() -> None:
    round_ = acknowledging(PROCESSING)
    confirm(round_, B, AckType.PROCESSING, success=False)
    for identity in (A, C):
        confirm(round_, identity, AckType.PROCESSING)

    status = round_.outcome_for(A)[Phase.PROCESSING]
    assert (status.state, status.failure) == (State.DOWNGRADED, Failure.PEER_DRAINING)
    assert status.offender == B.instance


# --- late and repeated frames ----------------------------------------------------------------


def test_a_second_acknowledgement_of_the_same_member_changes_nothing() -> None:
    round_ = acknowledging(OUTBOUND)
    confirm(round_, A, AckType.OUTBOUND)
    confirm(round_, A, AckType.OUTBOUND, success=False)
    for identity in (B, C):
        confirm(round_, identity, AckType.OUTBOUND)

    assert states(round_, A)[Phase.OUTBOUND] is State.SATISFIED


def test_an_acknowledgement_after_the_timeout_changes_nothing() -> None:
    round_ = acknowledging(OUTBOUND)
    for identity in (A, B):
        confirm(round_, identity, AckType.OUTBOUND)
    round_.expire(now=31)
    before = round_.outcome_for(A)
    confirm(round_, C, AckType.OUTBOUND)

    assert round_.outcome_for(A) == before
    assert before[Phase.OUTBOUND].failure is Failure.TIMEOUT


def test_an_acknowledgement_of_another_generation_changes_nothing() -> None:
    round_ = acknowledging(OUTBOUND)
    for identity in (A, B, C):
        stale = round_.generation - 1
        round_.acknowledge(identity, stale, AckType.OUTBOUND, observed=1, success=True)

    assert not round_.is_settled


def test_the_bound_of_a_phase_that_is_over_changes_nothing() -> None:
    round_ = acknowledging(PROCESSING)

    assert round_.expire(now=29.9) == []  # half of 60 s is not over, and no round gathers
    assert round_.stage is Stage.ACKNOWLEDGING


# --- bounds ----------------------------------------------------------------------------------


def test_a_rendezvous_timeout_fails_all_callers_and_names_the_first_missing_member() -> None:
    round_ = opened()
    arrive(round_, A, EVERYTHING, now=100)
    round_.expire(now=129.9)
    assert not round_.is_settled
    round_.expire(now=130)

    for status in round_.outcome_for(A):
        assert (status.state, status.failure) == (State.FAILED, Failure.TIMEOUT)
        assert status.offender == B.instance


def test_half_of_the_bound_is_a_warning_that_comes_once() -> None:
    round_ = opened()
    arrive(round_, A, now=100)

    assert round_.due == 115
    assert round_.expire(now=115) == [SlowPhase(Phase.RENDEZVOUS, (B, C), 15.0)]
    assert round_.expire(now=116) == []
    assert round_.due == 130


def test_the_shortest_rendezvous_timeout_applies() -> None:
    round_ = opened()
    arrive(round_, A, now=0)
    arrive(round_, B, now=1, timeouts=Timeouts.all(2))
    round_.expire(now=3)

    assert round_.outcome_for(A)[Phase.RENDEZVOUS].offender == C.instance


@pytest.mark.parametrize("bound", [0.0, 0.001, 1e6])
def test_a_bound_is_honoured_as_given(bound: float) -> None:
    round_ = opened()
    arrive(round_, A, now=10, timeouts=Timeouts.all(bound))

    if bound:
        round_.expire(10 + bound * 0.999)
        assert not round_.is_settled
    round_.expire(10 + bound)
    assert round_.is_settled


def test_only_callers_that_require_a_phase_bound_it() -> None:
    round_ = opened()
    arrive(round_, A, PROCESSING)
    arrive(round_, B, NOTHING, timeouts=Timeouts(30, 30, 30, 1))
    arrive(round_, C, NOTHING)
    round_.expire(now=59)
    assert not round_.is_settled
    round_.expire(now=60)
    assert round_.outcome_for(A)[Phase.PROCESSING].failure is Failure.TIMEOUT


# --- the coordinator goes --------------------------------------------------------------------


def test_a_stop_fails_what_is_not_over() -> None:
    gathering = opened()
    arrive(gathering, A, INBOUND)
    gathering.stop()
    assert states(gathering, A)[:2] == [State.FAILED, State.FAILED]
    assert gathering.outcome_for(A)[Phase.RENDEZVOUS].failure is Failure.COORDINATOR_STOP

    confirming = acknowledging()
    for identity in (A, B, C):
        confirm(confirming, identity, AckType.OUTBOUND)
    confirming.stop()
    good = State.SATISFIED
    assert states(confirming, A) == [good, good, good, State.FAILED]


# --- whatever happens ------------------------------------------------------------------------


@dataclass
class History:
    """Random events for one round, and what must hold after each of them."""

    round: Round
    now: float = 0.0
    gone: set[Identity] = field(default_factory=set)
    confirmed: dict[AckType, set[Identity]] = field(
        default_factory=lambda: {ack: set() for ack in AckType}
    )
    asked: list[tuple[Identity, AckType]] = field(default_factory=list)

    def take(self, event: tuple[str, Identity, AckType, Require]) -> None:
        what, identity, ack, require = event
        self.now += 1.0
        before = [self.round.status(phase) for phase in Phase]
        was_settled = self.round.is_settled
        self._do(what, identity, ack, require)
        after = [self.round.status(phase) for phase in Phase]
        for old, new in zip(before, after, strict=True):
            assert new.state >= old.state
            assert new == old or new.state > old.state
        if was_settled:
            assert after == before
        assert len(self.asked) == len(set(self.asked))

    def _do(self, what: str, identity: Identity, ack: AckType, require: Require) -> None:
        if what == "arrive" and self.round.expects(identity) and not self.round.is_settled:
            self.asked += [
                (ask.identity, ask.ack) for ask in arrive(self.round, identity, require, self.now)
            ]
        elif what == "confirm":
            if (identity, ack) in self.asked and identity not in self.gone:
                self.confirmed[ack].add(identity)
            confirm(self.round, identity, ack)
        elif what == "refuse":
            confirm(self.round, identity, ack, success=False)
        elif what in {"lose", "leave"}:
            self.gone.add(identity)
            why = Failure.PEER_LOST if what == "lose" else Failure.PEER_DRAINING
            asked = self.round.drop(identity, why, self.now)
            self.asked += [(ask.identity, ask.ack) for ask in asked]


events = st.tuples(
    st.sampled_from(
        ["arrive", "arrive", "arrive", "confirm", "confirm", "refuse", "lose", "leave"]
    ),
    st.sampled_from([A, B, C]),
    st.sampled_from(AckType),
    st.integers(0, 7).map(Require),
)


def played(happening: Sequence[tuple[str, Identity, AckType, Require]]) -> History:
    history = History(opened())
    for event in happening:
        history.take(event)
    return history


@given(st.lists(events, max_size=30))
def test_states_only_escalate_and_no_acknowledgement_is_requested_twice(
    happening: list[tuple[str, Identity, AckType, Require]],
) -> None:
    played(happening)


@given(st.lists(events, max_size=30))
def test_a_satisfied_phase_was_satisfied_by_every_member(
    happening: list[tuple[str, Identity, AckType, Require]],
) -> None:
    history = played(happening)
    round_ = history.round
    if not round_.is_settled:
        return
    for identity, _, require in round_.callers:
        outcome_for = round_.outcome_for(identity)
        if outcome_for[Phase.RENDEZVOUS].state is State.SATISFIED:
            assert not round_.pending
        for ack in AckType:
            if ack.phase.is_for(require) and outcome_for[ack.phase].state is State.SATISFIED:
                assert history.confirmed[ack] == {A, B, C}


@given(st.lists(events, max_size=30))
def test_timeouts_settle_every_round_with_callers(
    happening: list[tuple[str, Identity, AckType, Require]],
) -> None:
    history = played([("arrive", A, AckType.OUTBOUND, EVERYTHING), *happening])
    for _ in range(2):
        history.round.expire(now=1e9)

    assert history.round.is_settled
    for identity, _, require in history.round.callers:
        for phase, status in zip(Phase, history.round.outcome_for(identity), strict=True):
            is_asked_for = phase.is_for(require)
            assert (status.state is not State.NOT_REQUESTED) == is_asked_for
            assert (status.failure is Failure.NONE) == (status.state <= State.SATISFIED)


@given(st.permutations([A, B, C]), st.lists(st.integers(0, 7).map(Require), min_size=3, max_size=3))
def test_without_faults_every_required_phase_is_satisfied(
    order: list[Identity], requires: list[Require]
) -> None:
    round_, asked = opened(), []
    for identity, require in zip(order, requires, strict=True):
        asked = arrive(round_, identity, require)
    for ask in asked:
        assert not round_.is_settled
        confirm(round_, ask.identity, ask.ack)

    assert round_.is_settled
    for identity in order:
        assert all(status.is_good for status in round_.outcome_for(identity))
