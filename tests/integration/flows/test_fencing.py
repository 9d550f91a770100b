"""Whoever lost a task writes nothing for it any more, and is told so."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.flows.conftest import ITEMS, Hand
from tests.integration.flows.declared import gated
from tidegate.errors import (
    ClaimLost,
)
from tidegate.store import Database
from tidegate.store.flows import runs as store
from tidegate.store.flows import tasks


def test_a_stale_claimant_is_refused(hand: Hand, database: Database) -> None:
    run, generator = hand.generating()
    hand.spawn(generator, range(1))
    (stale,) = hand.claim(ITEMS)
    hand.ask("UPDATE tidegate.lease SET expires_at = now() RETURNING 1")
    assert hand.do(store.sweep_flows).freed == 2
    other = Hand(database, "other")
    (item,) = other.claim(ITEMS)
    (lost,) = hand.complete([stale], "7")
    assert isinstance(lost, ClaimLost)
    assert (lost.epoch, lost.current, lost.holder) == (1, 2, "held by other")
    with pytest.raises(ClaimLost):
        hand.spawn(generator, range(1, 2))
    with pytest.raises(ClaimLost):
        hand.do(tasks.finish_generator, generator)
    with pytest.raises(ClaimLost):
        hand.do(tasks.fail, stale, "late", 0.0, is_final=True)
    assert other.complete([item], "2") == []
    assert hand.do(store.item_results, run, "count_up", -1) == [(0, "2")]


def test_what_one_claim_has_done_may_be_reported_again(hand: Hand) -> None:
    run, generator = hand.generating()
    hand.spawn(generator, range(2))
    items = hand.claim(ITEMS)
    assert hand.complete(items, "1") == []
    assert hand.complete(items, "1") == []
    hand.do(tasks.finish_generator, generator)
    assert hand.do(tasks.finish_generator, generator) == 2
    assert hand.steps(run)["count_up"].succeeded == 2


def test_a_state_write_of_a_stale_claimant_is_refused(hand: Hand, database: Database) -> None:
    hand.begin(gated, "5")
    (stale,) = hand.claim("gated/switch")
    hand.ask("UPDATE tidegate.lease SET owner = NULL RETURNING 1")
    hand.do(store.sweep_flows)
    with pytest.raises(ClaimLost):
        hand.do(tasks.set_state, stale, "target", "5", "switch", once=False)


def test_claims_of_the_living_are_left_alone(hand: Hand) -> None:
    hand.generating()
    assert hand.do(store.sweep_flows).freed == 0


def test_two_workers_never_claim_the_same_task(hand: Hand, database: Database) -> None:
    _, generator = hand.generating()
    hand.spawn(generator, range(200))
    hands = [Hand(database, f"hand-{n}") for n in range(4)]
    with ThreadPoolExecutor(4) as threads:
        claims = list(threads.map(lambda it: it.claim(ITEMS, room=50), hands * 3))
    positions = [it.position for found in claims for it in found]
    assert sorted(positions) == list(range(200))


def test_claims_do_not_wait_for_each_other(hand: Hand, database: Database) -> None:
    _, generator = hand.generating()
    hand.spawn(generator, range(5))
    with database.connect() as slow, database.connect() as quick, slow.transaction():
        (first,) = tasks.claim(slow, hand.name, {ITEMS: 1})
        quick.execute("SET lock_timeout = '200ms'")
        others = tasks.claim(quick, hand.name, {ITEMS: 100})
    assert first.position == 0
    assert [it.position for it in others] == [1, 2, 3, 4]
