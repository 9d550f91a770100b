"""Sharing tasks among workers, as plain values and as a game that must come to rest."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tidegate.run.balance import Moves, decide, quota

WORKERS = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8, unique=True)


def holding(**tasks: str | None) -> dict[str, str | None]:
    return tasks


def test_the_only_worker_takes_everything_that_is_free() -> None:
    assert decide("a", ["a"], holding(t1=None, t2=None)) == Moves(take=("t1", "t2"))


def test_one_that_has_its_share_takes_no_more() -> None:
    assert decide("a", ["a", "b"], holding(t1="a", t2=None)) == Moves()


def test_one_that_has_too_much_hands_over_what_the_others_lack() -> None:
    facts = holding(t1="a", t2="a", t3="a", t4="a", t5="a")

    assert decide("a", ["a", "b"], facts) == Moves(hand_over=("t4", "t5"))


def test_an_uneven_share_is_left_as_it_is() -> None:
    facts = holding(t1="b", t2="b", t3="a")

    assert decide("a", ["a", "b"], facts) == decide("b", ["a", "b"], facts) == Moves()


def test_one_that_is_not_among_the_workers_any_more_hands_over_everything() -> None:
    assert decide("a", ["b"], holding(t1="a", t2="b")) == Moves(hand_over=("t1",))


def test_what_somebody_else_holds_is_never_taken() -> None:
    assert decide("b", ["a", "b"], holding(t1="a", t2="stranger", t3="a", t4=None)).take == ("t4",)


@given(WORKERS, st.integers(0, 40), st.data())
def test_quotas_add_up_and_differ_by_one_at_most(
    workers: list[str], tasks: int, data: st.DataObject
) -> None:
    held = {name: data.draw(st.integers(0, 40)) for name in workers}
    quotas = [quota(name, workers, held, tasks) for name in workers]

    assert sum(quotas) == tasks
    assert max(quotas) - min(quotas) <= 1


@given(WORKERS, st.integers(0, 30), st.data())
def test_they_come_to_rest_evenly_whoever_moves_first(
    workers: list[str], tasks: int, data: st.DataObject
) -> None:
    owners = st.none() | st.sampled_from([*workers, "dead"])
    holders = {f"t{number}": data.draw(owners) for number in range(tasks)}
    dead = [task for task, holder in holders.items() if holder == "dead"]
    for turn in range(6):
        if turn == 1:
            holders |= dict.fromkeys(dead)  # its leases have expired
        for worker in data.draw(st.permutations(workers)):
            moves = decide(worker, workers, holders)
            assert all(holders[task] is None for task in moves.take)
            assert all(holders[task] == worker for task in moves.hand_over)
            holders |= dict.fromkeys(moves.take, worker)
            holders |= dict.fromkeys(moves.hand_over)

    counts = Counter(holders.values())
    assert None not in counts
    assert not tasks or max(counts[it] for it in workers) - min(counts[it] for it in workers) <= 1
    assert all(decide(worker, workers, holders) == Moves() for worker in workers)
