"""A worker claims enough for its threads, and never more than they do within a moment."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tidegate.flows.worker.claim_sizing import AHEAD, MOST, Facts, Means, Wish, ahead, idle, wishes

queues = st.sampled_from("abcd")
in_hands = st.dictionaries(queues, st.integers(0, 600))
means = st.dictionaries(queues, st.floats(0, 100))
frees = st.dictionaries(queues, st.none() | st.integers(0, 10), min_size=1)
facts = st.builds(Facts, st.integers(0, 64), in_hands, means, frees, stuck=st.integers(0, 64))


@given(facts, st.integers(0, 4))
def test_nobody_hoards_and_nothing_beyond_what_is_free_is_claimed(it: Facts, more: int) -> None:
    held = sum(it.in_hand.values())
    for wish in wishes(it, more):
        assert wish.most <= max(0, MOST - held, it.threads - held)
        for queue, number in wish.rooms.items():
            free = it.free[queue]
            assert 0 < number <= (MOST if free is None else free)


@given(st.integers(1, 64), st.integers(1, 30))
def test_idle_threads_get_one_task_each_from_all_queues_together(threads: int, queues: int) -> None:
    free = dict.fromkeys([str(number) for number in range(queues)])
    (wish,) = wishes(Facts(threads, {}, {}, free), 0)
    assert wish == Wish(dict.fromkeys(free, threads), threads)


def test_generators_are_claimed_for_threads_of_their_own() -> None:
    it = Facts(2, {"a": 2}, {"a": 60.0}, {"a": None, "g": None}, frozenset("g"))
    assert wishes(it, 3) == [Wish({"g": 3}, 3)]


@given(st.integers(1, 64), st.floats(0.001, 100), st.integers(0, 500))
def test_no_more_is_claimed_ahead_than_is_done_within_a_moment(
    threads: int, mean: float, held: int
) -> None:
    found = ahead(threads, {"a": held}, {"a": mean}, "a")
    assert found == 0 or (held + found) * mean / threads <= AHEAD + 1e-9
    assert idle(threads, {"a": held}) == max(0, threads - held)


@given(facts)
def test_nothing_is_claimed_ahead_of_threads_that_are_all_stuck(it: Facts) -> None:
    stuck = replace(it, stuck=it.threads)
    assert sum(wish.most for wish in wishes(stuck, 0)) <= idle(it.threads, it.in_hand)


@given(facts, st.integers(0, 64))
def test_the_fewer_threads_are_stuck_the_more_is_claimed_ahead(it: Facts, more: int) -> None:
    few, many = it.stuck, it.stuck + more
    for queue in it.free:
        ahead_of_many = ahead(it.threads - many, it.in_hand, it.means, queue)
        assert ahead_of_many <= ahead(it.threads - few, it.in_hand, it.means, queue)


def test_a_mean_follows_what_tasks_take() -> None:
    seen = Means()
    for seconds in [1.0] * 5 + [0.1] * 50:
        seen.add("a", seconds)
    assert 0.1 <= seen.now["a"] < 0.11
