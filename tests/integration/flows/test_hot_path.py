"""What workers do all the time reads the tasks that it is about, however many there are."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.integration.flows.conftest import ITEMS, Hand
from tests.integration.flows.declared import gated
from tidegate.store import Connection
from tidegate.store.flows import tasks
from tidegate.store.flows.events import flow_ready, flow_waits
from tidegate.store.flows.metrics import flow_gauges
from tidegate.store.flows.tasks import Claim

THERE = 5_000
BATCH = 50
READ = """
SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::bigint
FROM pg_stat_xact_user_tables WHERE relname = 'flow_task'
"""


@pytest.fixture
def crowded(hand: Hand) -> tuple[Hand, Claim]:
    """Many tasks, some of them done, and a database that knows how many."""
    _, generator = hand.generating()
    for first in range(0, THERE, 500):
        hand.spawn(generator, range(first, first + 500))
    hand.complete(hand.claim(ITEMS, room=THERE // 2), "1")
    hand.do(lambda connection: connection.execute("ANALYZE tidegate.flow_task"))
    return hand, generator


def rows_read(hand: Hand, work: Callable[[Connection], object]) -> int:
    def read(connection: Connection) -> int:
        row = connection.execute(READ.encode()).fetchone()
        assert row is not None
        return int(row[0])

    def measured(connection: Connection) -> int:
        before = read(connection)  # of earlier transactions
        work(connection)
        return read(connection) - before

    return hand.do(measured)


def test_a_batch_is_claimed_and_completed_by_indexes(crowded: tuple[Hand, Claim]) -> None:
    hand, _ = crowded
    hand.claim(ITEMS, room=500)  # others are at work as well
    claimed: list[Claim] = []

    def claim(connection: Connection) -> None:
        claimed[:] = tasks.claim(connection, hand.name, {ITEMS: BATCH})

    # Dead rows that no vacuum has seen yet are passed once, and then known to be dead.
    hand.complete(hand.claim(ITEMS, room=BATCH), "1")
    assert rows_read(hand, claim) <= 10 * BATCH
    results = [(it, "1") for it in claimed]
    assert len(results) == BATCH
    assert rows_read(hand, lambda c: tasks.complete(c, hand.name, results)) <= 10 * BATCH


def test_a_batch_is_spawned_and_let_go_by_indexes(crowded: tuple[Hand, Claim]) -> None:
    hand, generator = crowded
    items = [(position, "1") for position in range(THERE, THERE + BATCH)]
    assert rows_read(hand, lambda c: tasks.spawn(c, generator, items)) <= 10 * BATCH
    claims = hand.claim(ITEMS, room=10 * BATCH)[:BATCH]
    assert rows_read(hand, lambda c: tasks.put_back(c, hand.name, claims)) <= 10 * BATCH


def test_inspecting_flows_reads_few_tasks(crowded: tuple[Hand, Claim]) -> None:
    hand, generator = crowded
    waiting = hand.begin(gated, "5")
    (switch,) = hand.claim("gated/switch")
    hand.do(tasks.suspend, switch, ["offset"], 0, 0, 0.0, None)
    assert rows_read(hand, lambda c: flow_waits(c, waiting)) <= BATCH
    assert rows_read(hand, lambda c: flow_waits(c, generator.run)) <= BATCH
    assert rows_read(hand, flow_gauges) <= BATCH
    assert rows_read(hand, lambda c: flow_ready(c, generator.run)) <= BATCH


def test_what_a_worker_holds_is_looked_at_without_reading_its_items(hand: Hand) -> None:
    _, generator = hand.generating()
    hand.do(tasks.spawn, generator, [(0, '"a large item"')])
    (item,) = hand.claim(ITEMS)
    held = {it.name: it.payload for it in hand.do(tasks.held_by, hand.name)}
    assert held == {generator.name: None, item.name: None}
