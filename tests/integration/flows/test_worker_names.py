"""A name of a flow worker belongs to one that lives."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
import pytest

from tests.integration.flows.conftest import Hand
from tests.integration.flows.declared import numbers
from tidegate.errors import NameTaken
from tidegate.flows.worker.worker import FlowWorker
from tidegate.flows.worker.worker_name import KIND, WorkerProcess, take_name
from tidegate.store import Database, Notifications, acquire


def owned_by(pid: int, host: str | None = None) -> str:
    """How a lease names its holder."""
    own = WorkerProcess.own()
    return msgspec.json.encode(WorkerProcess(host or own.host, own.space, pid, "x")).decode()


def gone() -> int:
    """The number of a process that has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(30)
    return ended.pid


def test_a_second_flow_worker_under_a_living_name_is_refused(
    hand: Hand, database: Database, notifications: Notifications
) -> None:
    with FlowWorker(database, [numbers], notifications, process="night-shift"):
        with pytest.raises(NameTaken) as refused:
            FlowWorker(database, [numbers], notifications, process="night-shift")
        assert (refused.value.name, refused.value.pid) == ("night-shift", os.getpid())
        with FlowWorker(database, [numbers], notifications, process="day-shift"):
            pass
    with FlowWorker(database, [numbers], notifications, process="night-shift") as later:
        assert later.name.startswith("night-shift-")


def test_a_worker_that_is_started_again_takes_the_name_of_one_that_was_killed(
    database: Database,
) -> None:
    database.transact(lambda c: acquire(c, KIND, "worker-1", owned_by(gone()), 600))
    lease = database.transact(lambda c: take_name(c, "worker-1", 6.0))
    assert lease.epoch == 2


@pytest.mark.parametrize(
    "holder", [owned_by(os.getpid()), owned_by(1, "elsewhere")], ids=["here", "elsewhere"]
)
def test_a_name_is_kept_for_a_worker_that_may_be_alive(holder: str, database: Database) -> None:
    database.transact(lambda c: acquire(c, KIND, "worker-1", holder, 600))
    with pytest.raises(NameTaken):
        database.transact(lambda c: take_name(c, "worker-1", 6.0))


def test_a_name_whose_lease_has_expired_is_free(database: Database) -> None:
    database.transact(lambda c: acquire(c, KIND, "worker-1", owned_by(1, "elsewhere"), 0.0))
    assert database.transact(lambda c: take_name(c, "worker-1", 6.0)).key == "worker-1"
