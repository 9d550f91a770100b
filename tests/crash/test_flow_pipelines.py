"""Workers of flows die while they submit runs of pipelines; each is begun and delivered once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyarrow import parquet

from tests.crash.flow_pipelines import counting
from tests.integration.conftest import (  # noqa: F401  fixtures
    new_database,
    server,
    spark,
    template,
    temporary_folder,
)
from tests.integration.runtime.shop import ask, shop
from tidegate.faults import VARIABLE
from tidegate.flows.client import start_flow
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.service import serve
from tidegate.spark import Session
from tidegate.store import Database, EmbeddedPostgres

LEASE = 1.0
BOUND = 120.0
POINTS = [
    "flow.submit.before_commit",
    "flow.submit.after_commit",
    "chunk.after_commit",
    "chunk.before_commit:4",
    "flow.submit.before_suspend",
    "flow.complete.before_commit",
]
"""The fourth commit of a chunk or an END: some of the sources are closed by then."""


@dataclass
class Shop:
    """A shop that is served here, for workers of a flow in processes of their own."""

    folder: Path
    database: Database

    def data(self) -> str:
        for source, text in {
            "items": "item_id,item_name\n1,tea\n",
            "sales": "item_id,quantity\n1,7\n1,7\n",
        }.items():
            (self.folder / "given" / source).mkdir(parents=True, exist_ok=True)
            for number in (1, 2) if source == "sales" else (1,):
                (self.folder / "given" / source / f"{number}.csv").write_text(text)
        return str(self.folder / "given")

    @contextmanager
    def hired(self, crash_at: str = "") -> Iterator[subprocess.Popen[bytes]]:
        command = [sys.executable, "-m", "tidegate", "flow", "worker"]
        command += ["tests.crash.flow_pipelines:counting", "--deployment", str(self.folder)]
        command += ["--database", self.database.url, "--lease", str(LEASE), "--threads", "2"]
        with (self.folder / "log").open("ab") as log:
            environment = {**os.environ, VARIABLE: crash_at}
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def said(self) -> str:
        return (self.folder / "log").read_text()


@pytest.fixture(scope="module")
def served(
    template: str,  # noqa: F811  a fixture
    new_database: Callable[[str], str],  # noqa: F811  a fixture
    server: EmbeddedPostgres,  # noqa: F811  a fixture
    spark: Session,  # noqa: F811  a fixture
) -> Iterator[Shop]:
    with (
        temporary_folder() as folder,
        Database(new_database(template), revive=server.ensure_running).open() as database,
    ):
        (folder / "data").mkdir()
        with serve(Deployment(database, str(folder / "data")), shop(), spark):
            yield Shop(folder, database)


@pytest.mark.timeout(3 * BOUND)
@pytest.mark.parametrize("point", POINTS)
def test_a_worker_that_fails_while_it_submits_leaves_one_run_with_one_delivery(
    served: Shop, point: str
) -> None:
    run = start_flow(served.database, counting, served.data())
    with served.hired(crash_at=point) as mortal:
        assert mortal.wait(BOUND) == -signal.SIGKILL, served.said()
    with served.hired():
        run.wait(BOUND)
    released = run.result("count")
    begun = "SELECT incarnation, state FROM tidegate.run WHERE name = %s"
    assert ask(served.database, begun, released.run) == [(1, "ended")]
    delivered = (
        "SELECT source, array_agg(chunk.number ORDER BY chunk.number), sum(rows)::int"
        " FROM tidegate.chunk JOIN tidegate.run ON run.id = run_id"
        " WHERE name = %s GROUP BY source ORDER BY source"
    )
    found = ask(served.database, delivered, released.run)
    assert found == [("items", [1], 1), ("sales", [1, 2], 4)]
    (file,) = released.files["best"]
    assert parquet.ParquetFile(file).read().to_pylist() == [{"item_name": "tea", "sold": 28_000}]
