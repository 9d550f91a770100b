"""Which connection gives way when there are too many."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tidegate.http.server.connection_table import Admitted, ConnectionTable, Rejected

ADDRESSES = ["here", "there", "elsewhere"]
MOVES = st.lists(
    st.tuples(st.sampled_from(["admit", "work", "wait", "remove"]), st.integers(0, 20))
)


def test_the_connection_that_waits_longest_gives_way() -> None:
    table = ConnectionTable[int](2, 2)
    assert table.admit(1, "here") == table.admit(2, "here") == Admitted()
    assert table.admit(3, "here") == Admitted(instead_of=1)


def test_a_connection_at_work_does_not_give_way() -> None:
    table = ConnectionTable[int](2, 2)
    for each in (1, 2):
        table.admit(each, "here")
        table.work(each)
    assert table.admit(3, "there") == Rejected(2)
    table.wait(2)
    assert table.admit(3, "there") == Admitted(instead_of=2)


def test_the_address_with_the_most_connections_gives_way_first() -> None:
    table = ConnectionTable[int](3, 3)
    table.admit(1, "there")
    table.admit(2, "here")
    table.admit(3, "here")
    assert table.admit(4, "elsewhere") == Admitted(instead_of=2)


def test_an_address_with_too_many_replaces_its_own() -> None:
    table = ConnectionTable[int](4, 1)
    table.admit(1, "there")
    table.admit(2, "here")
    assert table.admit(3, "here") == Admitted(instead_of=2)
    table.work(3)
    assert table.admit(4, "here") == Rejected(1)


@given(st.integers(1, 6), st.integers(1, 6), MOVES)
def test_the_bounds_hold_and_only_idle_connections_give_way(
    most: int, per_address: int, moves: list[tuple[str, int]]
) -> None:
    table = ConnectionTable[int](most, per_address)
    open_now: dict[int, str] = {}
    at_work: set[int] = set()
    for move, each in moves:
        address = ADDRESSES[each % len(ADDRESSES)]
        if move == "admit" and each not in open_now:
            decided = table.admit(each, address)
            if isinstance(decided, Admitted):
                assert decided.instead_of not in at_work
                open_now.pop(decided.instead_of or -1, None)
                if decided.instead_of == 0:
                    open_now.pop(0)
                open_now[each] = address
        elif each in open_now:
            getattr(table, move)(each) if move != "admit" else None
            at_work = at_work | {each} if move == "work" else at_work - {each}
            if move == "remove":
                del open_now[each]
        assert len(table) == len(open_now) <= most
        assert max(Counter(open_now.values()).values(), default=0) <= per_address
