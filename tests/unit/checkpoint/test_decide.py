"""The decisions of the checkpoint coordinator, as plain values and under Hypothesis."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.checkpoint import (
    FINAL_STATES,
    TRANSITIONS,
    Abort,
    ChangeState,
    CheckpointFacts,
    Checkpoints,
    CheckpointState,
    Commit,
    Fail,
    NoAction,
    PendingCheckpoint,
    Trigger,
    Unalign,
    WaitingTask,
    decide,
)

S = CheckpointState
EVERY = Checkpoints(every=5.0, alignment=10.0, acknowledgement=30.0, commit=3.0, tolerated=2)
IDLE = CheckpointFacts(EVERY, "c", since=6.0, rested=1.0)


def pending(
    state: CheckpointState,
    *,
    age: float = 1.0,
    not_injected: tuple[str, ...] = (),
    acknowledged: frozenset[str] = frozenset(),
    waiting: tuple[WaitingTask, ...] = (),
    complete_for: float | None = None,
) -> CheckpointFacts:
    checkpoint = PendingCheckpoint(4, state, age, not_injected, acknowledged, waiting, complete_for)
    return replace(IDLE, pending=checkpoint)


# --- triggering -------------------------------------------------------------------------------


def test_one_is_triggered_when_the_interval_has_passed() -> None:
    assert decide(IDLE) == Trigger()
    assert decide(replace(IDLE, since=4.9)) == NoAction()


def test_between_two_published_ones_only_state_is_stored() -> None:
    seldom = replace(IDLE, checkpoints=replace(EVERY, publish=60.0))

    assert decide(replace(seldom, unpublished=59.0)) == Trigger(is_unpublished=True)
    assert decide(replace(seldom, unpublished=61.0)) == Trigger()


def test_a_run_with_checkpoints_on_request_only_triggers_nothing() -> None:
    assert decide(replace(IDLE, checkpoints=Checkpoints())) == NoAction()


def test_the_pause_holds_also_for_a_shorter_interval() -> None:
    hurried = replace(EVERY, every=0.1, pause=8.0)

    assert decide(replace(IDLE, checkpoints=hurried)) == NoAction()
    assert decide(replace(IDLE, checkpoints=hurried, rested=8.0)) == Trigger()


def test_the_interval_is_from_beginning_to_beginning_and_the_pause_from_the_end() -> None:
    slow = replace(IDLE, since=9.0, rested=0.2)

    assert decide(slow) == NoAction()
    assert decide(replace(slow, rested=0.5)) == Trigger()


def test_nothing_is_triggered_when_all_sources_have_ended_or_the_run_is_closed() -> None:
    assert decide(replace(IDLE, has_open_source=False)) == NoAction()
    assert decide(replace(IDLE, is_open=False)) == NoAction()


def test_a_run_fails_when_more_fail_in_a_row_than_it_tolerates() -> None:
    assert decide(replace(IDLE, failures=2)) == Trigger()
    assert decide(replace(IDLE, failures=3)) == Fail("3 checkpoints in a row failed")
    patient = replace(EVERY, tolerated=None)
    assert decide(replace(IDLE, failures=99, checkpoints=patient)) == Trigger()


# --- becoming unaligned ------------------------------------------------------------------------

EITHER_WAY = replace(EVERY, unaligned_after=4.0)


def impatient(
    patience: float | None, state: CheckpointState = S.INJECTED, **more: Any
) -> CheckpointFacts:
    facts = replace(pending(state, **more), checkpoints=EITHER_WAY)
    assert facts.pending is not None
    return replace(facts, pending=replace(facts.pending, patience=patience))


def test_a_triggered_checkpoint_waits_as_long_as_the_run_allows() -> None:
    assert decide(replace(IDLE, checkpoints=EITHER_WAY)) == Trigger(patience=4.0)


def test_each_that_follows_an_unaligned_one_waits_twice_as_long() -> None:
    following = replace(IDLE, checkpoints=EITHER_WAY, unaligned=3)
    assert decide(following) == Trigger(patience=32.0)
    assert decide(replace(following, unaligned=99)) == Trigger(patience=1024.0)


def test_one_that_waits_for_no_barrier_is_unpublished_from_the_start() -> None:
    at_once = replace(EVERY, unaligned_after=0.0)
    assert decide(replace(IDLE, checkpoints=at_once)) == Trigger(is_unpublished=True, patience=0.0)


@pytest.mark.parametrize("state", [S.TRIGGERED, S.INJECTED, S.ALIGNING])
def test_one_that_has_waited_long_enough_becomes_unaligned(state: CheckpointState) -> None:
    not_injected = ("sales",) if state is S.TRIGGERED else ()
    assert decide(impatient(4.0, state, age=4.0, not_injected=not_injected)) == Unalign()
    assert not isinstance(
        decide(impatient(4.0, state, age=3.9, not_injected=not_injected)), Unalign
    )


def test_one_that_all_tasks_have_acknowledged_goes_on_however_old_it_is() -> None:
    facts = impatient(4.0, S.ALIGNING, age=5.0, acknowledged=frozenset({"c"}))
    assert decide(facts) == ChangeState(S.ACKNOWLEDGED)


def test_becoming_unaligned_comes_before_giving_up() -> None:
    waiting = (WaitingTask("b3", ("s1",), 99.0),)
    assert decide(impatient(4.0, S.ALIGNING, age=99.0, waiting=waiting)) == Unalign()
    assert isinstance(decide(impatient(None, S.ALIGNING, age=99.0, waiting=waiting)), Abort)


def test_a_closed_run_needs_no_unaligned_checkpoint() -> None:
    facts = replace(impatient(0.0), is_open=False)
    assert isinstance(decide(facts), Abort)


# --- progress --------------------------------------------------------------------------------


def test_it_is_injected_when_all_sources_have_injected_it() -> None:
    assert decide(pending(S.TRIGGERED, not_injected=("sales",))) == NoAction()
    assert decide(pending(S.TRIGGERED)) == ChangeState(S.INJECTED)


def test_it_aligns_once_a_task_has_it() -> None:
    assert decide(pending(S.INJECTED)) == NoAction()
    assert decide(pending(S.INJECTED, acknowledged=frozenset({"s1"}))) == ChangeState(S.ALIGNING)
    assert decide(pending(S.INJECTED, waiting=(WaitingTask("b", ("s2",), 1.0),))) == ChangeState(
        S.ALIGNING
    )


def test_it_is_committed_when_the_result_collector_has_it() -> None:
    all_tasks = frozenset({"s1", "b", "c"})

    assert decide(pending(S.ALIGNING, acknowledged=all_tasks)) == ChangeState(S.ACKNOWLEDGED)
    assert decide(pending(S.ACKNOWLEDGED, acknowledged=all_tasks)) == Commit()


def test_it_is_committed_also_when_the_run_has_ended_meanwhile() -> None:
    complete = pending(S.ACKNOWLEDGED, acknowledged=frozenset({"c"}))

    assert decide(replace(complete, is_open=False)) == Commit()


# --- giving up -------------------------------------------------------------------------------


def test_a_fan_in_that_waits_too_long_names_the_missing_upstreams() -> None:
    stuck = pending(S.ALIGNING, waiting=(WaitingTask("b7", ("s5/0", "s5/1"), 12.0),))
    verdict = decide(stuck)

    assert isinstance(verdict, Abort)
    assert verdict.offender == "s5/0, s5/1"
    assert "b7 has waited 12.0 s of 10 s" in verdict.reason


def test_a_task_that_has_it_from_all_sides_may_take_longer_than_an_alignment() -> None:
    assert decide(pending(S.ALIGNING, waiting=(WaitingTask("s4", (), 12.0),))) == NoAction()


def test_a_source_that_never_injects_is_named() -> None:
    late = pending(S.TRIGGERED, not_injected=("sales",), age=31.0)

    assert decide(late) == Abort("it was not injected within 30 s", "source sales")


def test_a_task_that_holds_it_is_named_before_those_that_wait_for_it() -> None:
    waiting = (WaitingTask("b", ("s4",), 5.0), WaitingTask("s4", (), 20.0))
    late = pending(S.ALIGNING, waiting=waiting, age=31.0)

    assert decide(late) == Abort("it was not acknowledged within 30 s", "s4")


def test_one_of_a_closed_run_is_given_up() -> None:
    verdict = decide(replace(pending(S.ALIGNING), is_open=False))

    assert isinstance(verdict, Abort)
    assert verdict.reason == "the run was closed"


def test_one_that_is_not_committed_in_time_is_given_up() -> None:
    late = pending(S.ACKNOWLEDGED, acknowledged=frozenset({"c"}), complete_for=3.5)

    assert decide(late) == Abort("it was not committed within 3 s", "the coordinator")


# --- always ----------------------------------------------------------------------------------

SECONDS = st.floats(0, 100)
NAMES = st.sampled_from(["s1", "s2", "b", "c"])
CHECKPOINTS = st.builds(
    PendingCheckpoint,
    number=st.integers(1, 9),
    state=st.sampled_from([state for state in S if state not in FINAL_STATES]),
    age=SECONDS,
    not_injected=st.lists(NAMES, max_size=2).map(tuple),
    acknowledged=st.frozensets(NAMES),
    waiting=st.lists(st.builds(WaitingTask, NAMES, st.lists(NAMES).map(tuple), SECONDS)).map(tuple),
    complete_for=st.none() | SECONDS,
    patience=st.none() | SECONDS,
)
FACTS = st.builds(
    CheckpointFacts,
    checkpoints=st.just(EVERY),
    collector=st.just("c"),
    is_open=st.booleans(),
    has_open_source=st.booleans(),
    since=SECONDS,
    failures=st.integers(0, 5),
    pending=st.none() | CHECKPOINTS,
)


@given(FACTS)
def test_every_action_is_a_transition_of_the_table(facts: CheckpointFacts) -> None:
    verdict = decide(facts)
    if facts.pending is None:
        assert isinstance(verdict, NoAction | Trigger | Fail)
        return
    following = TRANSITIONS[facts.pending.state]
    match verdict:
        case ChangeState(to):
            assert to in following
        case Commit():
            assert S.COMMITTED in following
            assert "c" in facts.pending.acknowledged
        case Unalign():
            assert "c" not in facts.pending.acknowledged
            assert facts.pending.patience is not None
            assert facts.pending.patience <= facts.pending.age
        case Abort(reason, offender):
            assert S.ABORTED in following
            assert reason
            assert offender
        case _:
            assert verdict == NoAction()


@given(CHECKPOINTS)
def test_every_checkpoint_reaches_a_final_state(checkpoint: PendingCheckpoint) -> None:
    late = replace(checkpoint, age=1e6, complete_for=None)
    while isinstance(verdict := decide(replace(IDLE, pending=late)), ChangeState | Unalign):
        if isinstance(verdict, ChangeState):
            late = replace(late, state=verdict.to)
        else:
            late = replace(late, acknowledged=frozenset({"c"}), complete_for=0.0)

    assert isinstance(verdict, Commit | Abort)
