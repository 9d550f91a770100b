"""A worker claims enough for its threads, and no more than they finish within the lookahead."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tidegate.flows.worker.claim_sizing import (
    LOOKAHEAD,
    MAX_IN_FLIGHT,
    ClaimFacts,
    ClaimRequest,
    TaskDurations,
    ahead,
    claim_requests,
    idle,
)

queues = st.sampled_from("abcd")
counts = st.dictionaries(queues, st.integers(0, 600))
durations = st.dictionaries(queues, st.floats(0, 100))
frees = st.dictionaries(queues, st.none() | st.integers(0, 10), min_size=1)
facts = st.builds(
    ClaimFacts, st.integers(0, 64), counts, durations, frees, stuck=st.integers(0, 64)
)


@given(facts, st.integers(0, 4))
def test_a_worker_claims_at_most_its_limit_and_what_is_free(it: ClaimFacts, more: int) -> None:
    held = sum(it.in_flight.values())
    for request in claim_requests(it, more):
        assert request.total <= max(0, MAX_IN_FLIGHT - held, it.threads - held)
        for queue, number in request.by_queue.items():
            free = it.free[queue]
            assert 0 < number <= (MAX_IN_FLIGHT if free is None else free)


@given(st.integers(1, 64), st.integers(1, 30))
def test_idle_threads_get_one_task_each_from_all_queues_together(threads: int, queues: int) -> None:
    free = dict.fromkeys([str(number) for number in range(queues)])
    (request,) = claim_requests(ClaimFacts(threads, {}, {}, free), 0)
    assert request == ClaimRequest(dict.fromkeys(free, threads), threads)


def test_generators_are_claimed_for_threads_of_their_own() -> None:
    it = ClaimFacts(2, {"a": 2}, {"a": 60.0}, {"a": None, "g": None}, frozenset("g"))
    assert claim_requests(it, 3) == [ClaimRequest({"g": 3}, 3)]


@given(st.integers(1, 64), st.floats(0.001, 100), st.integers(0, 500))
def test_no_more_is_claimed_than_the_threads_finish_within_the_lookahead(
    threads: int, mean: float, held: int
) -> None:
    found = ahead(threads, {"a": held}, {"a": mean}, "a")
    assert found == 0 or (held + found) * mean / threads <= LOOKAHEAD + 1e-9
    assert idle(threads, {"a": held}) == max(0, threads - held)


@given(facts)
def test_nothing_is_claimed_ahead_of_threads_that_are_all_stuck(it: ClaimFacts) -> None:
    stuck = replace(it, stuck=it.threads)
    assert sum(request.total for request in claim_requests(stuck, 0)) <= idle(
        it.threads, it.in_flight
    )


@given(facts, st.integers(0, 64))
def test_the_fewer_threads_are_stuck_the_more_is_claimed_ahead(it: ClaimFacts, more: int) -> None:
    few, many = it.stuck, it.stuck + more
    for queue in it.free:
        ahead_of_many = ahead(it.threads - many, it.in_flight, it.durations, queue)
        assert ahead_of_many <= ahead(it.threads - few, it.in_flight, it.durations, queue)


def test_a_mean_follows_what_tasks_take() -> None:
    seen = TaskDurations()
    for seconds in [1.0] * 5 + [0.1] * 50:
        seen.add("a", seconds)
    assert 0.1 <= seen.by_queue["a"] < 0.11
