"""Dead leases and old results, under a database clock that has gone back or far ahead.

The clock is emulated: what was written under another clock is written by hand.
"""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from tidegate.store import (
    ClockWatch,
    Database,
    Lease,
    acquire,
    free_keys,
    guard,
    holders,
    holders_below,
)
from tidegate.store.core.leases import renew

DAY = 86_400.0
MONTH = 30 * DAY
SHORT = 6.0


def take(database: Database, owner: str) -> Lease | None:
    return database.transact(lambda c: acquire(c, "task", "sales/s1", owner, SHORT))


def set_back(database: Database, seconds: float) -> None:
    """As if the clock had gone back since the leases were renewed."""
    shift = "UPDATE tidegate.lease SET expires_at = expires_at + make_interval(secs => %s)"
    database.transact(lambda c: c.execute(shift, (seconds,)))


def test_a_clock_that_goes_back_keeps_no_dead_lease(database: Database) -> None:
    assert take(database, "dead")
    set_back(database, 3600)

    assert database.transact(lambda c: free_keys(c, "task", ["sales/s1"])) == ["sales/s1"]
    assert database.transact(lambda c: holders(c, "task", ["sales/s1"])) == {}
    assert database.transact(lambda c: holders_below(c, "task", "sales/")) == {}
    taken = take(database, "next")
    assert taken is not None
    assert taken.epoch == 2


def test_a_clock_that_goes_back_a_little_leaves_a_living_holder_its_lease(
    database: Database,
) -> None:
    assert take(database, "alive")
    set_back(database, SHORT / 2)

    assert take(database, "next") is None


def test_a_living_holder_renews_its_lease_under_a_clock_that_has_gone_back(
    database: Database,
) -> None:
    lease = take(database, "alive")
    assert lease
    set_back(database, 3600)

    assert database.transact(lambda c: renew(c, [lease])) == [lease]
    assert take(database, "next") is None
    database.transact(lambda c: guard(c, lease))


def test_a_lease_of_a_release_that_noted_no_length_is_held_until_it_expires(
    database: Database,
) -> None:
    assert take(database, "alive")
    database.transact(lambda c: c.execute("UPDATE tidegate.lease SET seconds = NULL"))
    set_back(database, 3600)

    assert take(database, "next") is None


@pytest.fixture
def note(database: Database) -> Callable[[str], psycopg.Cursor[tuple[object, ...]]]:
    """Writes when the clock was seen, from now."""
    moment = "UPDATE tidegate.clock SET seen_at = clock_timestamp() + %s::interval"
    return lambda ago: database.transact(lambda c: c.execute(moment, (ago,)))


def test_a_new_deployment_believes_its_clock(database: Database) -> None:
    assert ClockWatch(database).trusts_age(MONTH)


@pytest.mark.parametrize("seen", ["-40 days", "2 hours"])
def test_after_a_jump_ages_are_not_believed_by_any_process(
    database: Database, note: Callable[[str], object], seen: str
) -> None:
    note(seen)

    assert not ClockWatch(database).trusts_age(MONTH)
    assert not ClockWatch(database).trusts_age(MONTH)
    assert ClockWatch(database, settle=0).trusts_age(MONTH)


def test_ages_are_believed_again_when_the_clock_has_been_steady(database: Database) -> None:
    steady = "UPDATE tidegate.clock SET steady_since = clock_timestamp() - %s::interval"
    database.transact(lambda c: c.execute(steady, ("1 hour",)))

    assert not ClockWatch(database).trusts_age(MONTH)
    assert ClockWatch(database).trusts_age(900)
    database.transact(lambda c: c.execute(steady, ("25 hours",)))
    assert ClockWatch(database).trusts_age(MONTH)
