"""When a step begins and how it ends follows from facts alone, whatever they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.flows.decide import (
    ItemCounts,
    Readiness,
    Verdict,
    WaitingFacts,
    decide_readiness,
    decide_verdict,
)
from tidegate.flows import Backoff, FailAtFirst, StepState, Tolerate

counts = st.builds(
    lambda succeeded, failed, canceled, open_, ended: ItemCounts(
        succeeded + failed + canceled + open_, succeeded, failed, canceled, ended
    ),
    *[st.integers(0, 50)] * 4,
    st.booleans(),
)
shares = st.one_of(st.floats(0, 1), st.integers(0, 100).map(lambda it: it / 100))
policies = st.one_of(
    st.just(FailAtFirst()),
    st.builds(Tolerate, count=st.integers(0, 60)),
    st.builds(Tolerate, share=shares),
    st.builds(Tolerate, count=st.integers(0, 60), share=shares),
)
waiting = st.builds(
    WaitingFacts,
    st.dictionaries(st.sampled_from("abcd"), st.sampled_from(StepState)),
    st.frozensets(st.sampled_from("abcd")),
    st.booleans(),
    st.booleans(),
)


@given(counts, policies)
def test_a_step_completes_only_when_generating_has_ended_and_all_items_are_terminal(
    it: ItemCounts, policy: FailAtFirst | Tolerate
) -> None:
    verdict = decide_verdict(it, policy)
    if verdict is Verdict.COMPLETE:
        assert it.is_ended
        assert it.spawned == it.terminal
    if it.is_ended and it.in_flight == 0:
        assert verdict is not Verdict.GO_ON


@pytest.mark.parametrize(("share", "failed"), [(0.29, 29), (0.57, 57), (0.58, 58)])
def test_a_share_is_compared_by_its_decimal_digits(share: float, failed: int) -> None:
    policy = Tolerate(share=share)
    borne = ItemCounts(100, 100 - failed, failed, is_ended=True)
    too_many = ItemCounts(100, 99 - failed, failed + 1, is_ended=True)
    assert decide_verdict(borne, policy) is Verdict.COMPLETE
    assert decide_verdict(too_many, policy) is Verdict.FAIL


@given(counts)
def test_without_tolerance_the_first_failure_fails_the_step(it: ItemCounts) -> None:
    assert (decide_verdict(it, FailAtFirst()) is Verdict.FAIL) == (it.failed > 0)


@given(counts, st.integers(0, 60))
def test_more_failures_than_the_tolerated_count_fail_the_step_at_once(
    it: ItemCounts, count: int
) -> None:
    assert (decide_verdict(it, Tolerate(count=count)) is Verdict.FAIL) == (it.failed > count)


@given(counts, st.floats(0, 1))
def test_a_share_is_judged_when_all_items_are_terminal(it: ItemCounts, share: float) -> None:
    verdict = decide_verdict(it, Tolerate(share=share))
    if not it.is_ended or it.in_flight:
        assert verdict is Verdict.GO_ON
    else:
        assert (verdict is Verdict.FAIL) == (it.failed > share * it.spawned)


def test_an_empty_stream_completes_under_every_policy() -> None:
    nothing = ItemCounts(0, 0, 0, is_ended=True)
    for policy in (FailAtFirst(), Tolerate(count=0), Tolerate(share=0.0)):
        assert decide_verdict(nothing, policy) is Verdict.COMPLETE


@given(waiting)
def test_a_step_starts_only_when_nothing_it_needs_is_missing(facts: WaitingFacts) -> None:
    if decide_readiness(facts) is Readiness.START:
        assert facts.has_signal or not facts.needs_signal
        for name, state in facts.dependencies.items():
            assert state is StepState.COMPLETED or (
                state is StepState.SKIPPED and name in facts.optional
            )


@given(waiting)
def test_a_step_is_skipped_exactly_when_one_was_that_it_cannot_do_without(
    facts: WaitingFacts,
) -> None:
    lacks = any(
        state is StepState.SKIPPED and name not in facts.optional
        for name, state in facts.dependencies.items()
    )
    assert (decide_readiness(facts) is Readiness.SKIP) == lacks


@given(st.integers(1, 10_000), st.floats(0, 1), st.floats(0, 100), st.floats(1, 10))
def test_pauses_never_exceed_their_limit_and_never_shrink(
    attempt: int, chance: float, first: float, factor: float
) -> None:
    backoff = Backoff(first=first, factor=factor, longest=30.0)
    pause = backoff.pause(attempt, chance)
    assert 0 <= pause <= 30.0
    assert backoff.pause(attempt + 1, chance) >= pause


@given(st.integers(1, 20), st.floats(0, 1))
def test_jitter_takes_at_most_its_part(attempt: int, chance: float) -> None:
    backoff = Backoff(jitter=0.5)
    whole = backoff.pause(attempt, 1.0)
    assert whole / 2 <= backoff.pause(attempt, chance) <= whole
