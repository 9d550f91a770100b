"""A clock that has jumped is not believed before it has been steady for a while."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from tidegate.store.core.clocks import AWAY, SLACK, ClockReading, ClockRecord, is_age_trusted, jump

DAY = 86_400.0
moments = st.integers(0, 4_000_000_000).map(float)
spans = st.integers(0, 400 * 86_400).map(float)


@given(moments, moments, spans, st.floats(-SLACK / 2, SLACK / 2))
def test_a_clock_that_advances_as_the_process_s_own_has_not_jumped(
    at: float, own: float, span: float, drift: float
) -> None:
    last, now = ClockReading(at, own), ClockReading(at + span + drift, own + span)

    assert jump(ClockRecord(0.0), last, now) == 0.0


@given(moments, moments, spans, st.floats(2 * SLACK, 1e9), st.sampled_from([-1, 1]))
def test_a_running_process_sees_every_jump(
    at: float, own: float, span: float, by: float, sign: int
) -> None:
    last, now = ClockReading(at, own), ClockReading(at + span + sign * by, own + span)

    assert abs(jump(ClockRecord(at), last, now) - sign * by) < 1.0


@given(moments, st.floats(AWAY + 1, 1e9))
def test_a_process_that_starts_doubts_a_clock_far_ahead_of_what_was_seen(
    at: float, by: float
) -> None:
    assert jump(ClockRecord(at), None, ClockReading(at + by, 0.0)) > 0


@given(moments, st.floats(SLACK + 1, 1e9))
def test_a_process_that_starts_doubts_a_clock_behind_what_was_seen(at: float, by: float) -> None:
    assert jump(ClockRecord(at), None, ClockReading(at - by, 0.0)) < 0


@given(moments, st.floats(0, AWAY - 1))
def test_a_process_that_starts_after_a_few_days_does_not(at: float, by: float) -> None:
    assert jump(ClockRecord(at), None, ClockReading(at + by, 0.0)) == 0.0


@given(moments, spans, spans)
def test_no_age_is_believed_that_is_longer_than_the_clock_was_steady(
    at: float, age: float, steady: float
) -> None:
    assert is_age_trusted(ClockRecord(at, at - steady), age, settle=inf) == (steady >= age)


def test_every_age_is_believed_when_the_clock_has_settled() -> None:
    assert is_age_trusted(ClockRecord(10 * DAY, 9 * DAY), 30 * DAY, settle=DAY)
    assert not is_age_trusted(ClockRecord(10 * DAY, 9.5 * DAY), 30 * DAY, settle=DAY)
    assert is_age_trusted(ClockRecord(10 * DAY), 30 * DAY, settle=inf)
