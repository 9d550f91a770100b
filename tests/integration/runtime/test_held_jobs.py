"""Jobs that do not end: other runs go on, and services and runs can be closed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any

import pytest

from tests.integration.runtime.jobs import Jobs
from tests.integration.runtime.shop import Client, files_of, rows, shop
from tests.waiting import wait_until
from tidegate.dataflow import Batch
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.file_storage import FileStorage
from tidegate.runtime.jobs import processor_factory as factories
from tidegate.runtime.jobs.job_batcher import ALONE_ROWS
from tidegate.runtime.monitor.sweeper import sweep
from tidegate.runtime.service import PipelineService, serve
from tidegate.runtime.task.processor import StepInput
from tidegate.runtime.task.task_loop import TaskLoop
from tidegate.runtime.worker.task_worker import JOIN_BOUND
from tidegate.spark import JobInput, PreparedStage, Session, run_stage_job
from tidegate.store import RunState, publications

TEA = [("tea", 7000)]
SCANS = 2
"""Jobs that a run of the shop begins with: what was sold, and what was sold in bulk."""


class HeldJobs(Jobs):
    """Holds up the jobs of one run; those of the others go on."""

    def __init__(self) -> None:
        super().__init__()
        self._counting = Lock()
        self.held: int | None = None
        """The run whose jobs are held from here on."""
        self.at_work = 0
        self.done: list[tuple[str, int]] = []
        """The stages and shards that were done for that run."""

    def __call__(
        self, session: Session, prepared: PreparedStage, shares: Sequence[JobInput], **where: Any
    ) -> list[dict[int | None, Batch]]:
        if self.held not in {share.run for share in shares}:
            return run_stage_job(session, prepared, shares, **where)
        self._count(1)
        self.done += [(prepared.stage.id, it.shard) for it in shares if it.run == self.held]
        try:
            return super().__call__(session, prepared, shares, **where)
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        with self._counting:
            self.at_work += change

    def hold(self, client: Client) -> None:
        self.goes_on.clear()
        self.held = client.id

    def wait_until_held(self) -> None:
        wait_until(lambda: self.at_work == SCANS)

    def release(self) -> None:
        """Let go what is held, and wait until it has run."""
        self.goes_on.set()
        wait_until(lambda: self.at_work == 0)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldJobs]:
    """Every job of the services of a test goes through it; nothing stays held after the test."""
    jobs = HeldJobs()
    monkeypatch.setattr(factories, "run_stage_job", jobs)
    yield jobs
    jobs.release()


@pytest.fixture
def service(held: HeldJobs, place: Deployment, spark: Session) -> Iterator[PipelineService]:
    with serve(place, shop(), spark) as service:
        yield service


def sold(client: Client, place: Deployment, spark: Session) -> list[tuple[object, ...]]:
    return rows(spark, place, client.wait()["best"])


def state(client: Client) -> RunState:
    return client.server.known(client.run).state


# --- other runs ------------------------------------------------------------------------------


@pytest.mark.parametrize("sales", [7, ALONE_ROWS])
def test_a_run_completes_while_the_job_of_another_is_held(
    sales: int,
    held: HeldJobs,
    service: PipelineService,
    place: Deployment,
    spark: Session,
    tmp_path: Path,
) -> None:
    stuck = Client(service.server, "stuck", tmp_path)
    held.hold(stuck)
    stuck.items(1, (1, "coffee"))
    stuck.sales(1, *[(1, 1)] * sales)
    stuck.end()
    held.wait_until_held()
    other = Client(service.server, "other", tmp_path)
    other.sell()
    assert sold(other, place, spark) == TEA
    assert (state(stuck), held.at_work) == (RunState.OPEN, SCANS)
    held.release()
    assert sold(stuck, place, spark) == [("coffee", sales * 1000)]


# --- giving up -------------------------------------------------------------------------------


def is_swept(place: Deployment, run: int) -> bool:
    sweep(place.database, FileStorage(place.root))
    return files_of(place, run) == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_run_that_is_cancelled_under_its_job_leaves_nothing_and_its_name_is_free_at_once(
    when: str,
    held: HeldJobs,
    service: PipelineService,
    place: Deployment,
    spark: Session,
    tmp_path: Path,
) -> None:
    """Its chunks may be swept before its job comes to read them, or after it has written."""
    stuck = Client(service.server, "march", tmp_path)
    held.hold(stuck)
    stuck.sell("coffee")
    held.wait_until_held()
    assert service.server.cancel("march")
    again, other = (Client(service.server, name, tmp_path) for name in ("march", "april"))
    again.sell()
    other.sell()
    assert sold(again, place, spark) == sold(other, place, spark) == TEA
    assert held.at_work == SCANS
    if when == "before":
        wait_until(lambda: is_swept(place, stuck.id))
    held.release()
    wait_until(lambda: is_swept(place, stuck.id))
    last = Client(service.server, "may", tmp_path)
    last.sell()
    assert sold(last, place, spark) == TEA
    assert is_swept(place, stuck.id)
    assert sold(again, place, spark) == TEA


# --- closing ---------------------------------------------------------------------------------


def has_all_tasks(service: PipelineService) -> bool:
    return set(service.worker.tasks) == set(service.task_graph.tasks)


def test_a_service_whose_job_is_held_closes_soon_and_another_completes_the_run(
    held: HeldJobs, place: Deployment, spark: Session, tmp_path: Path
) -> None:
    with ExitStack() as leaving:
        first = leaving.enter_context(serve(place, shop(), spark))
        wait_until(lambda: has_all_tasks(first))
        client = Client(first.server, "march", tmp_path)
        held.hold(client)
        client.sell()
        held.wait_until_held()
        held.held = None  # a service that takes the tasks over is not held
        with serve(place, shop(), spark) as staying:
            started = monotonic()
            leaving.close()
            assert monotonic() - started < JOIN_BOUND / 2
            client.server = staying.server
            assert sold(client, place, spark) == TEA
            assert held.at_work == SCANS
            held.release()
            assert place.database.transact(publications) == {f"march#{client.id}": 1}
            assert sold(client, place, spark) == TEA


# --- handing over ----------------------------------------------------------------------------


def test_a_worker_that_drains_waits_for_its_jobs_and_no_other_runs_them_again(
    held: HeldJobs,
    service: PipelineService,
    place: Deployment,
    spark: Session,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads: list[None] = []
    fetch = TaskLoop.fetch

    def counted(loop: TaskLoop) -> StepInput | None:
        reads.append(None)
        return fetch(loop)

    monkeypatch.setattr(TaskLoop, "fetch", counted)
    client = Client(service.server, "march", tmp_path)
    held.hold(client)
    client.sell()
    held.wait_until_held()
    reads.clear()
    assert service.worker.drain(0.5) is False  # they are at work
    assert len(reads) < 20 * len(service.task_graph.tasks)  # waiting is not spinning
    with serve(place, shop(), spark) as other:
        wait_until(lambda: len(other.worker.tasks) > 0)
        held.release()
        assert service.worker.drain(30) is True
        assert service.worker.tasks == ()
        assert sold(client, place, spark) == TEA
    assert max(Counter(held.done).values()) == 1
