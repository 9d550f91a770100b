"""A sweep frees what workers have left, of every run that it can have, and knows who has died."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import psycopg
import pytest

from tests.integration.flows.conftest import GENERATOR, ITEMS, Hand
from tests.integration.flows.declared import numbers
from tidegate.store import Database, acquire
from tidegate.store.core.leases import release
from tidegate.store.flows import runs as store
from tidegate.store.flows import tasks
from tidegate.store.flows.pipeline_links import sweep_pipelines
from tidegate.store.flows.tasks import FLOW_WORKER

LOSSES = "SELECT max(losses) FROM tidegate.flow_task WHERE run_id = %s"
LOCK = "SELECT tidegate.flow_lock(%s)"
BOUNDED = "SET statement_timeout = '20s'"


def stop(hand: Hand, name: str) -> None:
    """A worker is restarted in the middle of a task, and gives its lease back."""
    lease = hand.do(acquire, FLOW_WORKER, name, name, 60.0)
    assert lease is not None
    assert hand.do(tasks.claim, name, {GENERATOR: 1})
    hand.do(release, lease)


def test_stopped_workers_have_not_failed(hand: Hand) -> None:
    run = hand.begin(numbers, "5")
    for number in range(15):
        stop(hand, f"stopped-{number}")
        assert hand.do(store.sweep_flows).freed == 1
    assert hand.state(run) == "running"
    assert hand.ask(LOSSES, run) == [(0,)]
    assert hand.do(store.sweep_flows).freed == 0
    assert hand.ask("SELECT count(*) FROM tidegate.lease WHERE owner IS NULL") == [(0,)]


def test_a_worker_that_was_stopped_is_known_until_all_of_its_tasks_are_freed(
    hand: Hand, url: str
) -> None:
    run = hand.begin(numbers, "5")
    stop(hand, "stopped")
    with psycopg.connect(url) as forgotten:
        forgotten.execute(LOCK.encode(), (run,))
        assert hand.do(store.sweep_flows).freed == 0
    assert hand.do(store.sweep_flows).freed == 1
    assert hand.ask(LOSSES, run) == [(0,)]


def test_a_lease_that_expires_is_a_death(hand: Hand) -> None:
    run = hand.begin(numbers, "5")
    hand.do(acquire, FLOW_WORKER, "frozen", "frozen", 0.0)
    assert hand.do(tasks.claim, "frozen", {GENERATOR: 1})
    assert hand.do(store.sweep_flows).freed == 1
    assert hand.ask(LOSSES, run) == [(1,)]


def test_a_clock_that_goes_back_keeps_no_failed_worker(hand: Hand) -> None:
    run = hand.begin(numbers, "5")
    hand.do(acquire, FLOW_WORKER, "dead", "dead", 6.0)
    assert hand.do(tasks.claim, "dead", {GENERATOR: 1})
    # As if the clock had gone back since the lease was renewed.
    hand.ask("UPDATE tidegate.lease SET expires_at = expires_at + interval '1 hour' RETURNING 1")
    assert hand.do(store.sweep_flows).freed == 1
    assert hand.ask(LOSSES, run) == [(1,)]


def test_a_run_that_is_locked_stops_the_sweep_of_no_other(hand: Hand, url: str) -> None:
    locked, other = hand.begin(numbers, "5"), hand.begin(numbers, "5")
    hand.do(tasks.claim, "dead", {GENERATOR: 2})
    with psycopg.connect(url) as forgotten, psycopg.connect(url) as sweeper:
        forgotten.execute(LOCK.encode(), (locked,))
        sweeper.execute(BOUNDED)
        assert store.sweep_flows(sweeper).freed == 1
        sweep_pipelines(sweeper)
    assert [it.run for it in hand.claim(GENERATOR)] == [other]
    assert hand.do(store.sweep_flows).freed == 1
    assert [it.run for it in hand.claim(GENERATOR)] == [locked]


@pytest.mark.timeout(60)
def test_a_run_that_is_always_busy_is_swept_too(hand: Hand, database: Database) -> None:
    run, generator = hand.generating()
    hand.spawn(generator, range(2))
    hand.do(tasks.claim, "dead", {ITEMS: 1})
    busy = (LOCK + "; SELECT pg_sleep(0.02)").replace("%s", str(run)).encode()
    is_over = False

    def keep_busy(_: int) -> None:
        while not is_over:
            database.transact(lambda connection: connection.execute(busy))

    with ThreadPoolExecutor(3) as threads:
        working = [threads.submit(partial(keep_busy, it)) for it in range(3)]
        try:
            freed = sum(hand.do(store.sweep_flows).freed for _ in range(5))
        finally:
            is_over = True
        for it in working:
            it.result(30)
    assert freed == 1
