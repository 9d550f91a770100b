"""Waits outlive their workers, and an item that kills workers harms no other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.crash.flows import Job
from tests.crash.gated import MOST, deadly, offset, patient
from tests.crash.test_flows import BOUND, Crew
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
from tidegate.flows.client import begin, result, write_state
from tidegate.store import Database


@pytest.fixture
def crew(database: Database) -> Iterator[Crew]:  # noqa: F811  a fixture
    with temporary_folder() as folder, ExitStack() as left:
        yield Crew(database, folder, left, flows="tests.crash.gated")


def job(crew: Crew, items: int = 0, seconds: float = 0.0) -> Job:
    return Job(items, seconds, str(crew.folder / "marks"))


def test_a_wait_and_its_watermark_outlive_the_workers(crew: Crew) -> None:
    run = begin(crew.database, patient, job(crew, seconds=1.0))
    parked = "SELECT count(*) FROM tidegate.flow_task WHERE state = 'parked'"
    first = crew.hire()
    wait_until(lambda: crew.ask(parked) == 1, BOUND)
    first.kill()
    first.wait()
    write_state(crew.database, run, offset, 50, "a feed")
    second = crew.hire()
    wait_until(lambda: crew.marks().count("captured") == 2 and crew.ask(parked) == 1, BOUND)
    write_state(crew.database, run, offset, 100, "a feed")
    wait_until(lambda: "through" in crew.marks(), BOUND)
    second.kill()  # behind its wait
    crew.hire()
    wait_until(lambda: crew.state(run) is FlowState.COMPLETED, BOUND)
    assert result(crew.database, patient, run, "switch") == 100
    assert crew.marks().count("through") == 2


def test_a_wait_that_nobody_works_for_ends_at_once_when_it_is_cancelled(crew: Crew) -> None:
    run = begin(crew.database, patient, job(crew))
    worker = crew.hire()
    parked = "SELECT count(*) FROM tidegate.flow_task WHERE state = 'parked'"
    wait_until(lambda: crew.ask(parked) == 1, BOUND)
    worker.kill()
    worker.wait()
    assert crew.ask(f"SELECT tidegate.flow_cancel({run})") == "canceled"


def test_an_item_that_kills_its_workers_takes_no_other_with_it(crew: Crew) -> None:
    run = begin(crew.database, deadly, job(crew, items=40))
    worker = crew.hire()

    def is_over() -> bool:
        nonlocal worker
        if worker.poll() is not None:
            worker = crew.hire()
        return crew.state(run) is not FlowState.RUNNING

    wait_until(is_over, 2 * BOUND)
    assert crew.state(run) is FlowState.COMPLETED, crew.said()
    assert list(result(crew.database, deadly, run, "produce")) == list(range(40))
    assert crew.marks().count("poison") == MOST + 1
