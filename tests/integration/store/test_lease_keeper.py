"""The heartbeat keeps what is owned, and notices what is lost, with or without the database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from threading import Event
from time import monotonic, sleep

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tidegate.store import Database, EmbeddedPostgres, Lease, LeaseKeeper, acquire


def take(database: Database, owner: str, seconds: float) -> Lease | None:
    return database.transact(lambda c: acquire(c, "task", "sales/s1", owner, seconds))


def steal(database: Database) -> None:
    """Give the lease to another, as if it had expired."""
    database.transact(
        lambda c: c.execute("UPDATE tidegate.lease SET owner = 'bob', epoch = epoch + 1")
    )


def test_a_lease_outlives_its_time_while_it_is_kept(database: Database) -> None:
    lost: Queue[Lease] = Queue()
    lease = take(database, "ann", 2)
    assert lease is not None
    with LeaseKeeper(database, lost.put) as heartbeat:
        heartbeat.keep(lease)
        deadline = monotonic() + 3
        while monotonic() < deadline:
            assert take(database, "bob", 2) is None
            sleep(0.05)
        assert list(heartbeat.held) == [lease]
        assert heartbeat.release(lease)
        assert list(heartbeat.held) == []
    assert lost.empty()
    assert take(database, "bob", 2) is not None


def test_a_lease_is_kept_although_all_other_connections_of_its_process_are_busy(url: str) -> None:
    lost: Queue[Lease] = Queue()
    is_busy, goes_on = Event(), Event()

    def hold(connection: psycopg.Connection) -> None:
        is_busy.set()
        assert goes_on.wait(60)

    with (
        Database(url, pool_size=1).open() as database,
        ThreadPoolExecutor(1) as threads,
        LeaseKeeper(database, lost.put) as heartbeat,
    ):
        lease = take(database, "ann", 3.0)
        assert lease is not None
        heartbeat.keep(lease)
        held = threads.submit(database.transact, hold)
        assert is_busy.wait(30)
        deadline = monotonic() + 5
        while monotonic() < deadline:
            assert list(heartbeat.held) == [lease]
            sleep(0.05)
        goes_on.set()
        held.result(30)
    assert lost.empty()


def test_a_stolen_lease_is_reported_lost_once(database: Database) -> None:
    lost: Queue[Lease] = Queue()
    lease = take(database, "ann", 0.3)
    assert lease is not None
    with LeaseKeeper(database, lost.put) as heartbeat:
        heartbeat.keep(lease)
        steal(database)
        assert lost.get(timeout=30) == lease
        assert list(heartbeat.held) == []
        assert not heartbeat.release(lease)
    assert lost.empty()


def test_a_lease_that_could_not_be_renewed_in_time_is_given_up(
    url: str, server: EmbeddedPostgres
) -> None:
    lost: Queue[Lease] = Queue()
    with Database(url).open() as database, LeaseKeeper(database, lost.put) as heartbeat:
        lease = take(database, "ann", 0.6)
        assert lease is not None
        heartbeat.keep(lease)
        lock_out(url, server)
        assert lost.get(timeout=30) == lease
        assert not heartbeat.held


def lock_out(url: str, server: EmbeddedPostgres) -> None:
    """Break all connections to a database and refuse new ones."""
    name = conninfo_to_dict(url)["dbname"]
    with psycopg.connect(server.url, autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false".encode())
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
        )
