"""Leases: one owner at a time, epochs that only grow, and stale writes that change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread
from time import monotonic

import psycopg
import pytest

from tidegate.errors import Fenced
from tidegate.store import Database, Lease, acquire, free_keys, guard
from tidegate.store.core.leases import release, renew

LONG = 3600.0
EXPIRED = 0.0


@pytest.fixture
def ann(url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url, autocommit=True) as session:
        yield session


@pytest.fixture
def bob(url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url, autocommit=True) as session:
        yield session


def take(session: psycopg.Connection, owner: str, seconds: float = LONG) -> Lease:
    lease = acquire(session, "task", "sales/s1", owner, seconds)
    assert lease is not None
    return lease


def test_what_is_held_is_not_given_to_another(
    ann: psycopg.Connection, bob: psycopg.Connection
) -> None:
    assert take(ann, "ann").epoch == 1
    assert acquire(bob, "task", "sales/s1", "bob", LONG) is None
    assert acquire(bob, "monitor", "sales/s1", "bob", LONG) is not None


def test_an_expired_lease_goes_to_the_next_who_asks_under_a_higher_epoch(
    ann: psycopg.Connection, bob: psycopg.Connection
) -> None:
    take(ann, "ann", EXPIRED)
    assert take(bob, "bob").epoch == 2
    assert acquire(ann, "task", "sales/s1", "ann", LONG) is None


def test_asking_again_for_what_one_holds_keeps_the_epoch(ann: psycopg.Connection) -> None:
    assert take(ann, "ann").epoch == take(ann, "ann").epoch == 1


def test_one_s_own_expired_lease_comes_back_under_a_higher_epoch(ann: psycopg.Connection) -> None:
    take(ann, "ann", EXPIRED)
    assert take(ann, "ann").epoch == 2


def test_a_released_lease_is_free_at_once_and_its_epoch_is_not_used_again(
    ann: psycopg.Connection, bob: psycopg.Connection
) -> None:
    assert release(ann, take(ann, "ann"))
    assert take(bob, "bob").epoch == 2


def test_a_lost_lease_is_neither_renewed_nor_released(
    ann: psycopg.Connection, bob: psycopg.Connection
) -> None:
    lost = take(ann, "ann", EXPIRED)
    kept = acquire(ann, "task", "sales/s2", "ann", LONG)
    assert kept is not None
    take(bob, "bob")
    assert renew(ann, [lost, kept]) == [kept]
    assert not release(ann, lost)
    assert acquire(ann, "task", "sales/s1", "ann", LONG) is None


def test_a_renewed_lease_is_not_given_away(
    ann: psycopg.Connection, bob: psycopg.Connection
) -> None:
    lease = Lease("task", "sales/s1", "ann", take(ann, "ann", EXPIRED).epoch, LONG)
    assert renew(ann, [lease]) == [lease]
    assert acquire(bob, "task", "sales/s1", "bob", LONG) is None


def test_free_keys_are_those_nobody_holds(ann: psycopg.Connection) -> None:
    take(ann, "ann")
    acquire(ann, "task", "sales/s2", "ann", EXPIRED)
    keys = ["sales/s1", "sales/s2", "sales/s3"]
    assert free_keys(ann, "task", keys) == ["sales/s2", "sales/s3"]


def test_a_stale_owner_s_write_changes_nothing_and_says_so(
    database: Database, ann: psycopg.Connection, bob: psycopg.Connection
) -> None:
    stale = take(ann, "ann", EXPIRED)
    take(bob, "bob")

    def write(connection: psycopg.Connection) -> None:
        connection.execute("INSERT INTO tidegate.lease VALUES ('proof', 'x', 'ann', 1, now())")
        guard(connection, stale)

    with pytest.raises(Fenced) as fenced:
        database.transact(write)
    assert (fenced.value.epoch, fenced.value.holder, fenced.value.current) == (1, "bob", 2)
    assert ann.execute("SELECT FROM tidegate.lease WHERE kind = 'proof'").rowcount == 0


def test_the_same_owner_under_an_old_epoch_is_stale_too(ann: psycopg.Connection) -> None:
    old = take(ann, "ann", EXPIRED)
    take(ann, "ann")
    with pytest.raises(Fenced):
        guard(ann, old)


def test_what_was_never_acquired_is_fenced(ann: psycopg.Connection) -> None:
    with pytest.raises(Fenced) as fenced:
        guard(ann, Lease("task", "nothing", "ann", 1, LONG))
    assert (fenced.value.holder, fenced.value.current) == ("none", 0)


def test_an_expired_lease_that_nobody_took_still_guards(ann: psycopg.Connection) -> None:
    guard(ann, take(ann, "ann", EXPIRED))


def test_a_guarded_lease_is_not_stolen_before_the_commit(
    ann: psycopg.Connection, bob: psycopg.Connection
) -> None:
    lease = take(ann, "ann", EXPIRED)
    stolen: list[Lease] = []
    thief = Thread(target=lambda: stolen.append(take(bob, "bob")))
    with ann.transaction():
        guard(ann, lease)
        thief.start()
        _wait_until_blocked(ann, bob.info.backend_pid)
        assert stolen == []
    thief.join(30)
    assert stolen[0].epoch == 2


def _wait_until_blocked(session: psycopg.Connection, pid: int) -> None:
    deadline = monotonic() + 30
    while session.execute("SELECT pg_blocking_pids(%s)", (pid,)).fetchone() == ([],):
        assert monotonic() < deadline, "the second session was never blocked"


def test_of_many_who_ask_at_once_one_gets_it(database: Database) -> None:
    got: list[Lease | None] = []

    def ask(owner: str) -> None:
        got.append(database.transact(lambda c: acquire(c, "task", "sales/s1", owner, LONG)))

    threads = [Thread(target=ask, args=(f"worker {n}",)) for n in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(got) == 10
    assert [lease.epoch for lease in got if lease is not None] == [1]
