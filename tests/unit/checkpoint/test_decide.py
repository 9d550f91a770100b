"""What the coordinator of checkpoints decides, as plain values and under Hypothesis."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.checkpoint import (
    OVER,
    TRANSITIONS,
    Abort,
    Advance,
    CheckpointFacts,
    Checkpoints,
    CheckpointState,
    Commit,
    Fail,
    Rest,
    Trigger,
    Unalign,
    UnderWay,
    Waiting,
    decide,
)

S = CheckpointState
EVERY = Checkpoints(every=5.0, alignment=10.0, acknowledgement=30.0, commit=3.0, tolerated=2)
IDLE = CheckpointFacts(EVERY, "c", since=6.0, rested=1.0)


def under_way(
    state: CheckpointState,
    *,
    age: float = 1.0,
    owing: tuple[str, ...] = (),
    acknowledged: frozenset[str] = frozenset(),
    waiting: tuple[Waiting, ...] = (),
    complete_for: float | None = None,
) -> CheckpointFacts:
    it = UnderWay(4, state, age, owing, acknowledged, waiting, complete_for)
    return replace(IDLE, under_way=it)


# --- beginning -------------------------------------------------------------------------------


def test_one_is_triggered_when_the_interval_has_passed() -> None:
    assert decide(IDLE) == Trigger()
    assert decide(replace(IDLE, since=4.9)) == Rest()


def test_between_two_that_sinks_show_only_states_are_kept() -> None:
    seldom = replace(IDLE, checkpoints=replace(EVERY, publish=60.0))

    assert decide(replace(seldom, unpublished=59.0)) == Trigger(is_unpublished=True)
    assert decide(replace(seldom, unpublished=61.0)) == Trigger()


def test_a_run_that_is_cut_only_when_asked_triggers_nothing() -> None:
    assert decide(replace(IDLE, checkpoints=Checkpoints())) == Rest()


def test_the_pause_holds_also_for_a_shorter_interval() -> None:
    hurried = replace(EVERY, every=0.1, pause=8.0)

    assert decide(replace(IDLE, checkpoints=hurried)) == Rest()
    assert decide(replace(IDLE, checkpoints=hurried, rested=8.0)) == Trigger()


def test_the_interval_is_from_beginning_to_beginning_and_the_pause_from_the_end() -> None:
    slow = replace(IDLE, since=9.0, rested=0.2)

    assert decide(slow) == Rest()
    assert decide(replace(slow, rested=0.5)) == Trigger()


def test_nothing_is_triggered_when_all_sources_have_ended_or_the_run_is_closed() -> None:
    assert decide(replace(IDLE, has_open_source=False)) == Rest()
    assert decide(replace(IDLE, is_open=False)) == Rest()


def test_a_run_fails_when_more_fail_in_a_row_than_it_tolerates() -> None:
    assert decide(replace(IDLE, failures=2)) == Trigger()
    assert decide(replace(IDLE, failures=3)) == Fail("3 checkpoints in a row failed")
    patient = replace(EVERY, tolerated=None)
    assert decide(replace(IDLE, failures=99, checkpoints=patient)) == Trigger()


# --- waiting no longer ------------------------------------------------------------------------

EITHER_WAY = replace(EVERY, unaligned_after=4.0)


def impatient(
    patience: float | None, state: CheckpointState = S.INJECTED, **more: Any
) -> CheckpointFacts:
    facts = replace(under_way(state, **more), checkpoints=EITHER_WAY)
    assert facts.under_way is not None
    return replace(facts, under_way=replace(facts.under_way, patience=patience))


def test_what_is_triggered_has_the_patience_that_the_run_has() -> None:
    assert decide(replace(IDLE, checkpoints=EITHER_WAY)) == Trigger(patience=4.0)


def test_each_that_follows_one_that_did_not_wait_has_twice_its_patience() -> None:
    following = replace(IDLE, checkpoints=EITHER_WAY, unaligned=3)
    assert decide(following) == Trigger(patience=32.0)
    assert decide(replace(following, unaligned=99)) == Trigger(patience=1024.0)


def test_one_that_waits_for_nobody_is_quiet_from_its_beginning() -> None:
    at_once = replace(EVERY, unaligned_after=0.0)
    assert decide(replace(IDLE, checkpoints=at_once)) == Trigger(is_unpublished=True, patience=0.0)


@pytest.mark.parametrize("state", [S.TRIGGERED, S.INJECTED, S.ALIGNING])
def test_one_that_has_lost_its_patience_waits_no_longer(state: CheckpointState) -> None:
    owing = ("sales",) if state is S.TRIGGERED else ()
    assert decide(impatient(4.0, state, age=4.0, owing=owing)) == Unalign()
    assert not isinstance(decide(impatient(4.0, state, age=3.9, owing=owing)), Unalign)


def test_one_that_everybody_has_acknowledged_goes_on_however_old_it_is() -> None:
    facts = impatient(4.0, S.ALIGNING, age=5.0, acknowledged=frozenset({"c"}))
    assert decide(facts) == Advance(S.ACKNOWLEDGED)


def test_waiting_no_longer_comes_before_giving_up() -> None:
    waiting = (Waiting("b3", ("s1",), 99.0),)
    assert decide(impatient(4.0, S.ALIGNING, age=99.0, waiting=waiting)) == Unalign()
    assert isinstance(decide(impatient(None, S.ALIGNING, age=99.0, waiting=waiting)), Abort)


def test_a_closed_run_needs_no_checkpoint_that_did_not_wait() -> None:
    facts = replace(impatient(0.0), is_open=False)
    assert isinstance(decide(facts), Abort)


# --- going on --------------------------------------------------------------------------------


def test_it_is_injected_when_no_source_owes_it() -> None:
    assert decide(under_way(S.TRIGGERED, owing=("sales",))) == Rest()
    assert decide(under_way(S.TRIGGERED)) == Advance(S.INJECTED)


def test_it_aligns_once_somebody_has_it() -> None:
    assert decide(under_way(S.INJECTED)) == Rest()
    assert decide(under_way(S.INJECTED, acknowledged=frozenset({"s1"}))) == Advance(S.ALIGNING)
    assert decide(under_way(S.INJECTED, waiting=(Waiting("b", ("s2",), 1.0),))) == Advance(
        S.ALIGNING
    )


def test_it_is_committed_when_the_collecting_end_has_it() -> None:
    everybody = frozenset({"s1", "b", "c"})

    assert decide(under_way(S.ALIGNING, acknowledged=everybody)) == Advance(S.ACKNOWLEDGED)
    assert decide(under_way(S.ACKNOWLEDGED, acknowledged=everybody)) == Commit()


def test_it_is_committed_also_when_the_run_has_ended_meanwhile() -> None:
    complete = under_way(S.ACKNOWLEDGED, acknowledged=frozenset({"c"}))

    assert decide(replace(complete, is_open=False)) == Commit()


# --- giving up -------------------------------------------------------------------------------


def test_a_fan_in_that_waits_too_long_names_who_has_not_delivered() -> None:
    stuck = under_way(S.ALIGNING, waiting=(Waiting("b7", ("s5/0", "s5/1"), 12.0),))
    verdict = decide(stuck)

    assert isinstance(verdict, Abort)
    assert verdict.offender == "s5/0, s5/1"
    assert "b7 has waited 12.0 s of 10 s" in verdict.reason


def test_a_task_that_has_it_from_all_sides_may_take_longer_than_an_alignment() -> None:
    assert decide(under_way(S.ALIGNING, waiting=(Waiting("s4", (), 12.0),))) == Rest()


def test_a_source_that_never_injects_is_named() -> None:
    late = under_way(S.TRIGGERED, owing=("sales",), age=31.0)

    assert decide(late) == Abort("it was not injected within 30 s", "source sales")


def test_whoever_keeps_it_is_named_before_those_who_wait_for_him() -> None:
    waiting = (Waiting("b", ("s4",), 5.0), Waiting("s4", (), 20.0))
    late = under_way(S.ALIGNING, waiting=waiting, age=31.0)

    assert decide(late) == Abort("it was not acknowledged within 30 s", "s4")


def test_one_of_a_closed_run_is_given_up() -> None:
    verdict = decide(replace(under_way(S.ALIGNING), is_open=False))

    assert isinstance(verdict, Abort)
    assert verdict.reason == "the run was closed"


def test_one_that_nobody_commits_in_time_is_given_up() -> None:
    late = under_way(S.ACKNOWLEDGED, acknowledged=frozenset({"c"}), complete_for=3.5)

    assert decide(late) == Abort("it was not committed within 3 s", "the coordinator")


# --- always ----------------------------------------------------------------------------------

SECONDS = st.floats(0, 100)
NAMES = st.sampled_from(["s1", "s2", "b", "c"])
CHECKPOINTS = st.builds(
    UnderWay,
    number=st.integers(1, 9),
    state=st.sampled_from([state for state in S if state not in OVER]),
    age=SECONDS,
    owing=st.lists(NAMES, max_size=2).map(tuple),
    acknowledged=st.frozensets(NAMES),
    waiting=st.lists(st.builds(Waiting, NAMES, st.lists(NAMES).map(tuple), SECONDS)).map(tuple),
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
    under_way=st.none() | CHECKPOINTS,
)


@given(FACTS)
def test_nothing_ever_happens_that_the_table_does_not_have(facts: CheckpointFacts) -> None:
    verdict = decide(facts)
    if facts.under_way is None:
        assert isinstance(verdict, Rest | Trigger | Fail)
        return
    following = TRANSITIONS[facts.under_way.state]
    match verdict:
        case Advance(to):
            assert to in following
        case Commit():
            assert S.COMMITTED in following
            assert "c" in facts.under_way.acknowledged
        case Unalign():
            assert "c" not in facts.under_way.acknowledged
            assert facts.under_way.patience is not None
            assert facts.under_way.patience <= facts.under_way.age
        case Abort(reason, offender):
            assert S.ABORTED in following
            assert reason
            assert offender
        case _:
            assert verdict == Rest()


@given(CHECKPOINTS)
def test_every_checkpoint_is_over_some_time(checkpoint: UnderWay) -> None:
    late = replace(checkpoint, age=1e6, complete_for=None)
    while isinstance(verdict := decide(replace(IDLE, under_way=late)), Advance | Unalign):
        if isinstance(verdict, Advance):
            late = replace(late, state=verdict.to)
        else:
            late = replace(late, acknowledged=frozenset({"c"}), complete_for=0.0)

    assert isinstance(verdict, Commit | Abort)
