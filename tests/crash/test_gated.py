"""Waits outlive their workers, and an item that kills workers harms no other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.crash.flows import Job
from tests.crash.gated import MOST, deadly, offset, patient
from tests.crash.test_flows import BOUND, ProcessSupervisor
from tests.integration.conftest import (  # noqa: F401  fixtures
    database,
    new_database,
    server,
    template,
    temporary_folder,
    url,
)
from tests.waiting import wait_until
from tidegate.flows import FlowState
from tidegate.flows.client import start_flow
from tidegate.store import Database


@pytest.fixture
def supervisor(database: Database) -> Iterator[ProcessSupervisor]:  # noqa: F811  a fixture
    with temporary_folder() as folder, ExitStack() as left:
        yield ProcessSupervisor(database, folder, left, flows="tests.crash.gated")


def job(supervisor: ProcessSupervisor, items: int = 0, seconds: float = 0.0) -> Job:
    return Job(items, seconds, str(supervisor.folder / "marks"))


def test_a_wait_and_its_watermark_outlive_the_workers(supervisor: ProcessSupervisor) -> None:
    run = start_flow(supervisor.database, patient, job(supervisor, seconds=1.0))
    suspended = "SELECT count(*) FROM tidegate.flow_task WHERE state = 'suspended'"
    first = supervisor.hire()
    wait_until(lambda: supervisor.ask(suspended) == 1, BOUND)
    first.kill()
    first.wait()
    run.set_state(offset, 50, "a feed")
    second = supervisor.hire()
    wait_until(
        lambda: supervisor.marks().count("captured") == 2 and supervisor.ask(suspended) == 1, BOUND
    )
    run.set_state(offset, 100, "a feed")
    wait_until(lambda: "through" in supervisor.marks(), BOUND)
    second.kill()  # behind its wait
    supervisor.hire()
    wait_until(lambda: supervisor.state(run) is FlowState.COMPLETED, BOUND)
    assert run.result("switch") == 100
    assert supervisor.marks().count("through") == 2


def test_a_wait_that_nobody_works_for_ends_at_once_when_it_is_cancelled(
    supervisor: ProcessSupervisor,
) -> None:
    run = start_flow(supervisor.database, patient, job(supervisor))
    worker = supervisor.hire()
    suspended = "SELECT count(*) FROM tidegate.flow_task WHERE state = 'suspended'"
    wait_until(lambda: supervisor.ask(suspended) == 1, BOUND)
    worker.kill()
    worker.wait()
    assert supervisor.ask(f"SELECT tidegate.flow_cancel({run.id})") == "canceled"


def test_an_item_that_kills_its_workers_takes_no_other_with_it(
    supervisor: ProcessSupervisor,
) -> None:
    run = start_flow(supervisor.database, deadly, job(supervisor, items=40))
    worker = supervisor.hire()

    def is_over() -> bool:
        nonlocal worker
        if worker.poll() is not None:
            worker = supervisor.hire()
        return supervisor.state(run) is not FlowState.RUNNING

    wait_until(is_over, 2 * BOUND)
    assert supervisor.state(run) is FlowState.COMPLETED, supervisor.said()
    assert list(run.result("produce")) == list(range(40))
    assert supervisor.marks().count("poison") == MOST + 1
