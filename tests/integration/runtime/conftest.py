"""Deployments for tests of served pipelines: one of their own, or one for a whole file of tests."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from tests.integration.runtime.jobs import Jobs
from tests.integration.runtime.names import Hub
from tests.integration.runtime.shop import shop
from tidegate.plan import physical_plan
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.ingestion.run_service import RunService
from tidegate.runtime.jobs import processor_factory as factories
from tidegate.runtime.service import PipelineService, serve
from tidegate.runtime.task_graph import TaskGraph, build_task_graph
from tidegate.spark import Session
from tidegate.store import Database, EmbeddedPostgres, Notifications


@pytest.fixture
def place(database: Database, tmp_path: Path) -> Deployment:
    """A deployment that nobody else uses."""
    (tmp_path / "data").mkdir()
    return Deployment(database, str(tmp_path / "data"))


@pytest.fixture(scope="module")
def hub(
    template: str, new_database: Callable[[str], str], server: EmbeddedPostgres
) -> Iterator[Hub]:
    """One database for all benches of a file."""
    with (
        Database(new_database(template), revive=server.ensure_running).open() as database,
        Notifications(database) as notifications,
    ):
        yield database, notifications


@pytest.fixture(scope="module")
def common_place(
    template: str,
    new_database: Callable[[str], str],
    server: EmbeddedPostgres,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Deployment]:
    """A deployment for all tests of a file; every test has runs of its own."""
    root = str(tmp_path_factory.mktemp("data"))
    with Database(new_database(template), revive=server.ensure_running).open() as database:
        yield Deployment(database, root)


@pytest.fixture(scope="module")
def common(common_place: Deployment, spark: Session) -> Iterator[PipelineService]:
    """The shop, served for all tests of a file: checking it again would cost more than a test."""
    with serve(common_place, shop(), spark) as service:
        yield service


@pytest.fixture
def task_graph() -> TaskGraph:
    """The tasks of the shop."""
    return build_task_graph(physical_plan(shop()))


@pytest.fixture
def counter(
    place: Deployment, task_graph: TaskGraph, request: pytest.FixtureRequest
) -> Iterator[RunService]:
    """A server of the shop without anybody who works behind it; starts Spark only when needed."""

    def session() -> Session:
        return cast("Session", request.getfixturevalue("spark"))

    with Notifications(place.database) as notifications:
        yield RunService(place, shop(), task_graph, session, notifications)


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Jobs:
    """Every job of the services of a test goes through it."""
    jobs = Jobs()
    monkeypatch.setattr(factories, "run_stage_job", jobs)
    return jobs


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of four megabytes."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root can mount a small disk")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
