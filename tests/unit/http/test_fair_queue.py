"""Clients are served in turn, whatever they send."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from tidegate.http.limits.fair_queue import FairQueue

CLIENTS = ["ann", "ben", "cat", "dan"]
PUT, TAKE, DONE = "put", "take", "done"
MOVES = st.lists(st.tuples(st.sampled_from([PUT, TAKE, DONE]), st.sampled_from(CLIENTS)))


@dataclass
class Model:
    """What was put and taken, by the clock of the moves."""

    slots: int
    waiting: dict[str, list[int]] = field(default_factory=lambda: {it: [] for it in CLIENTS})
    at_work: Counter[str] = field(default_factory=Counter)
    passed: dict[str, Counter[str]] = field(default_factory=dict)
    """For each client that waits and has nothing at work: who was served before it since then."""

    def put(self, client: str, item: int) -> None:
        self.waiting[client].append(item)
        self.watch(client)

    def watch(self, client: str) -> None:
        if self.waiting[client] and not self.at_work[client]:
            self.passed.setdefault(client, Counter())

    def took(self, client: str, item: int) -> None:
        assert item == self.waiting[client].pop(0), "in order within a client"
        self.at_work[client] += 1
        self.passed.pop(client, None)
        for before in self.passed.values():
            before[client] += 1
            assert before[client] <= 1, "behind one item of each other client at most"

    @property
    def may_start(self) -> bool:
        most = max(1, self.slots - 1)
        is_free = self.at_work.total() < self.slots
        return is_free and any(self.waiting[it] and self.at_work[it] < most for it in CLIENTS)


@given(st.integers(1, 4), MOVES)
def test_clients_are_served_in_turn_and_each_in_order_and_no_slot_is_idle_in_vain(
    slots: int, moves: list[tuple[str, str]]
) -> None:
    queue, model = FairQueue[int](slots), Model(slots)
    for number, (move, client) in enumerate(moves):
        if move == PUT:
            queue.put(client, number)
            model.put(client, number)
        elif move == TAKE:
            taken = queue.take()
            assert (taken is not None) == model.may_start
            if taken is not None:
                model.took(*taken)
        elif model.at_work[client]:
            queue.done(client)
            model.at_work[client] -= 1
            model.watch(client)


@given(st.integers(2, 8))
def test_a_client_alone_leaves_one_slot_for_the_next(slots: int) -> None:
    queue = FairQueue[int](slots)
    for number in range(2 * slots):
        queue.put("ann", number)
    begun = [taken for _ in range(slots) if (taken := queue.take()) is not None]
    assert begun == [("ann", number) for number in range(slots - 1)]
    queue.put("ben", 0)
    assert queue.take() == ("ben", 0)


def test_a_single_slot_is_used_by_a_client_alone() -> None:
    queue = FairQueue[int](1)
    queue.put("ann", 1)
    assert queue.take() == ("ann", 1)
    assert queue.take() is None
