"""Wake-ups come with the commit, and everybody looks again after a lost connection."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from threading import Semaphore

import psycopg
import pytest

from tidegate.store import Database, EmbeddedPostgres, Notifications
from tidegate.store.core.notifications import notify


@pytest.fixture
def notifications(database: Database) -> Iterator[Notifications]:
    with Notifications(database) as notifications:
        assert notifications.wait_listening(30)
        yield notifications


def test_a_commit_wakes_the_topics_it_names_once(
    database: Database, notifications: Notifications
) -> None:
    sales, stores = Semaphore(0), Semaphore(0)
    notifications.subscribe("sales", sales.release)
    notifications.subscribe("stores", stores.release)
    assert sales.acquire(timeout=30)  # subscribing calls once
    assert stores.acquire(timeout=30)

    database.transact(lambda connection: notify(connection, ["sales"]))
    assert sales.acquire(timeout=30)
    database.transact(lambda connection: notify(connection, ["stores"]))
    assert stores.acquire(timeout=30)
    assert not sales.acquire(blocking=False)


def test_a_transaction_that_is_rolled_back_wakes_nobody(
    database: Database, notifications: Notifications
) -> None:
    sales, after = Semaphore(0), Semaphore(0)
    notifications.subscribe("sales", sales.release)
    notifications.subscribe("after", after.release)
    assert sales.acquire(timeout=30)
    assert after.acquire(timeout=30)

    def fail(connection: psycopg.Connection) -> None:
        notify(connection, ["sales"])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        database.transact(fail)
    database.transact(lambda connection: notify(connection, ["after"]))
    assert after.acquire(timeout=30)
    assert not sales.acquire(blocking=False)


def test_who_unsubscribed_is_not_called_any_more(
    database: Database, notifications: Notifications
) -> None:
    gone, here = Semaphore(0), Semaphore(0)
    notifications.subscribe("sales", gone.release)()
    notifications.subscribe("sales", here.release)
    assert here.acquire(timeout=30)
    assert gone.acquire(timeout=30)
    database.transact(lambda connection: notify(connection, ["sales"]))
    assert here.acquire(timeout=30)
    assert not gone.acquire(blocking=False)


def test_after_a_restart_of_the_server_everybody_looks_again_and_is_woken_again(
    database: Database, notifications: Notifications, server: EmbeddedPostgres
) -> None:
    sales = Semaphore(0)
    notifications.subscribe("sales", sales.release)
    assert sales.acquire(timeout=30)
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert sales.acquire(timeout=60)  # listening anew
    database.transact(lambda connection: notify(connection, ["sales"]))
    assert sales.acquire(timeout=30)
