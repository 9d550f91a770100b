"""A deployment that this process serves, and its command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.cli.command import Command
from tests.integration.runtime.shop import shop
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.service import PipelineService, serve
from tidegate.spark import Session
from tidegate.store import Database, EmbeddedPostgres


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a deployment for all tests of a file; each test has its own run."""
    found = tmp_path_factory.mktemp("deployment")
    (found / "data").mkdir()
    return found


@pytest.fixture(scope="module")
def place(
    template: str, new_database: Callable[[str], str], server: EmbeddedPostgres, folder: Path
) -> Iterator[Deployment]:
    with Database(new_database(template), revive=server.ensure_running).open() as database:
        yield Deployment(database, str(folder / "data"))


@pytest.fixture(scope="module")
def service(place: Deployment, spark: Session) -> Iterator[PipelineService]:
    with serve(place, shop(), spark) as service:
        yield service


@pytest.fixture
def command(folder: Path, place: Deployment) -> Command:
    return Command(folder, place.database)
