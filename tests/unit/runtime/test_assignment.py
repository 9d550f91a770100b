"""Sharing tasks among workers, as plain values and as a game that must come to rest."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tidegate.runtime.worker.assignment import Capabilities, Moves, decide

BOTH: Capabilities = {"a": None, "b": None}
WORKERS = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6, unique=True)


def holding(**tasks: str | None) -> dict[str, str | None]:
    return tasks


def test_the_only_worker_takes_everything_that_is_free() -> None:
    assert decide("a", {"a": None}, holding(t1=None, t2=None)) == Moves(take=("t1", "t2"))


def test_a_worker_with_its_share_takes_no_more() -> None:
    assert decide("a", BOTH, holding(t1="a", t2=None)) == Moves()


def test_one_that_has_too_much_hands_over_what_the_others_lack() -> None:
    facts = holding(t1="a", t2="a", t3="a", t4="a", t5="a")

    assert decide("a", BOTH, facts) == Moves(hand_over=("t4", "t5"))


def test_an_uneven_share_is_left_as_it_is() -> None:
    facts = holding(t1="b", t2="b", t3="a")

    assert decide("a", BOTH, facts) == decide("b", BOTH, facts) == Moves()


def test_one_that_is_not_among_the_workers_any_more_hands_over_everything() -> None:
    assert decide("a", {"b": None}, holding(t1="a", t2="b")) == Moves(hand_over=("t1",))


def test_tasks_of_other_workers_are_never_taken() -> None:
    facts = holding(t1="a", t2="stranger", t3="a", t4=None)

    assert decide("b", BOTH, facts).take == ("t4",)


def test_a_task_goes_to_a_capable_worker_however_busy() -> None:
    able: Capabilities = {"a": ["t1", "t2", "t3"], "b": ["t4"]}
    facts = holding(t1="a", t2="a", t3=None, t4=None)

    assert decide("a", able, facts) == Moves(take=("t3",))
    assert decide("b", able, facts) == Moves(take=("t4",))


def test_a_task_that_its_owner_can_no_longer_run_is_handed_over() -> None:
    able: Capabilities = {"a": ["t1"], "b": None}

    assert decide("a", able, holding(t1="a", t2="a")) == Moves(hand_over=("t2",))


def test_a_task_that_no_worker_can_run_stays_free() -> None:
    able: Capabilities = {"a": ["t1"]}

    assert decide("a", able, holding(t1="a", t2=None)) == Moves()


@given(WORKERS, st.integers(0, 25), st.data())
def test_the_assignment_converges_evenly_in_any_order_of_moves(
    workers: list[str], tasks: int, data: st.DataObject
) -> None:
    names = [f"t{number}" for number in range(tasks)]
    some = st.none() | st.lists(st.sampled_from(names or ["none"]), unique=True)
    able: Capabilities = {name: data.draw(some) for name in workers}
    owners = st.none() | st.sampled_from([*workers, "lost"])
    holders = {name: data.draw(owners) for name in names}
    lost = [task for task, holder in holders.items() if holder == "lost"]
    for turn in range(6):
        if turn == 1:
            holders |= dict.fromkeys(lost)  # its leases have expired
        for worker in data.draw(st.permutations(workers)):
            moves = decide(worker, able, holders)
            assert all(holders[task] is None for task in moves.take)
            assert all(holders[task] == worker for task in moves.hand_over)
            holders |= dict.fromkeys(moves.take, worker)
            holders |= dict.fromkeys(moves.hand_over)

    assert all(decide(worker, able, holders) == Moves() for worker in workers)
    load = Counter(holders.values())
    for task, holder in holders.items():
        takers = [name for name in workers if (tasks_of := able[name]) is None or task in tasks_of]
        assert holder in takers if takers else True
        assert all(load[holder] - load[taker] <= 1 for taker in takers)
