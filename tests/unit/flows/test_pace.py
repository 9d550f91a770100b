"""A worker claims enough for its threads, and never more than they do within a moment."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.run.flows.pace import AHEAD, MOST, Means, room

queues = st.sampled_from("abc")
in_hands = st.dictionaries(queues, st.integers(0, 1000))
means = st.dictionaries(queues, st.floats(0, 100))


@given(st.integers(1, 64), in_hands, means, queues)
def test_idle_threads_get_work_and_nobody_hoards(
    threads: int, in_hand: dict[str, int], known: dict[str, float], queue: str
) -> None:
    held = sum(in_hand.values())
    found = room(threads, in_hand, known, queue)
    assert found + held <= max(MOST, held)
    if held < threads:
        assert found >= min(threads, MOST) - held


@given(st.integers(1, 64), st.floats(0.001, 100), st.integers(0, 500))
def test_no_more_is_claimed_ahead_than_is_done_within_a_moment(
    threads: int, mean: float, held: int
) -> None:
    found = room(threads, {"a": held}, {"a": mean}, "a")
    if found > max(0, threads - held):
        assert (held + found) * mean / threads <= AHEAD + mean


def test_a_mean_follows_what_tasks_take() -> None:
    seen = Means()
    for seconds in [1.0] * 5 + [0.1] * 50:
        seen.add("a", seconds)
    assert 0.1 <= seen.now["a"] < 0.11
