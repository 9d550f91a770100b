"""The coffee pipeline on every engine: the same bytes, or an honest refusal before it starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.integration.conftest import temporary_folder
from tests.integration.engines.cluster import EXECUTOR_MEMORY, Cluster, running_cluster
from tests.integration.engines.coffee_on import Asked, Came
from tests.integration.engines.servers import running_connect_server, running_sail
from tidegate_examples.coffee.data import Size, write

ROOT = Path(__file__).parents[3]
BOUND = 280
SMALL = {
    "spark.executor.memory": EXECUTOR_MEMORY,
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
}
SHORT = {"TIDEGATE_ENGINE_BOUND": "8"}
"""Seconds for what never comes; what does come gets the default."""

Run: TypeAlias = Callable[..., Came]

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with temporary_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def data(folder: Path) -> Path:
    write(folder / "coffee", Size(transactions=1_000, files=2), seed=11)
    return folder / "coffee"


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[Cluster]:
    with running_cluster(folder / "cluster", workers=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def deserted(folder: Path) -> Iterator[Cluster]:
    """A master to whom no worker has come."""
    with running_cluster(folder / "deserted", workers=0) as cluster:
        yield cluster


@pytest.fixture
def coffee_on(data: Path) -> Iterator[Run]:
    """Runs the pipeline in a process and a deployment of its own."""
    with temporary_folder() as here:

        def run(
            master: str,
            settings: dict[str, str] = SMALL,
            environment: dict[str, str] | None = None,
            **more: object,
        ) -> Came:
            request = Asked(master, str(here), str(data), settings=settings, **more)  # type: ignore[arg-type]
            return came_of(request, here, environment or {})

        yield run


def came_of(request: Asked, cwd: Path, environment: dict[str, str]) -> Came:
    module = "tests.integration.engines.coffee_on"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", module, json.dumps(asdict(request))],
        capture_output=True,
        text=True,
        timeout=BOUND,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return Came(**json.loads(done.stdout))


@pytest.fixture(scope="module")
def expected(data: Path) -> Came:
    """What a local Spark makes of the data."""
    with temporary_folder() as here:
        request = Asked("local[2]", str(here), str(data), settings=SMALL)
        came = came_of(request, here, {})
    assert came.error == ""
    assert all(came.rows.values())
    return came


def test_a_standalone_cluster_gives_the_bytes_of_a_local_spark(
    cluster: Cluster, expected: Came, coffee_on: Run
) -> None:
    came = coffee_on(cluster.url, environment=cluster.secret)

    assert (came.error, came.results) == ("", expected.results)


def test_an_executor_that_is_killed_in_a_task_changes_no_byte(
    cluster: Cluster, expected: Came, coffee_on: Run
) -> None:
    came = coffee_on(cluster.url, environment=cluster.secret, workers=cluster.worker_ids)

    assert came.killed
    assert came.lost_tasks
    assert (came.error, came.results) == ("", expected.results)


def test_a_connect_server_on_a_cluster_gives_the_bytes_of_a_local_spark(
    cluster: Cluster, folder: Path, expected: Came, coffee_on: Run
) -> None:
    with running_connect_server(cluster, SMALL, folder / "connect.log") as url:
        came = coffee_on(url)

    assert (came.error, came.results) == ("", expected.results)


def test_a_driver_that_does_not_know_the_secret_of_its_cluster_is_not_started(
    deserted: Cluster, coffee_on: Run
) -> None:
    came = coffee_on(deserted.url)

    assert came.error == "SparkUnprotected"


def test_executors_that_see_another_folder_are_found_out_before_anything_starts(
    cluster: Cluster, coffee_on: Run
) -> None:
    # Every process has a folder of its own under this path, as machines have without a shared disk.
    came = coffee_on(
        cluster.url, environment=cluster.secret, root="/proc/self/cwd/data", only_asks=True
    )

    assert came.error == "EngineUnfit"
    assert {it["what"] for it in came.complaints} == {"the data folder /proc/self/cwd/data"}


def test_executors_larger_than_any_worker_are_refused_within_a_bound(
    cluster: Cluster, coffee_on: Run
) -> None:
    large = {**SMALL, "spark.executor.memory": "3g"}
    came = coffee_on(cluster.url, large, {**SHORT, **cluster.secret}, only_asks=True)

    (complaint,) = came.complaints
    assert complaint["required"] == "1 task slot on an executor of 3072 MiB"
    found = "2 workers with 1 core and 1024 MiB, 1 core and 1024 MiB"
    assert complaint["available"] == f"0 within 8 s: {found}"


def test_a_cluster_without_workers_is_refused_within_a_bound(
    deserted: Cluster, coffee_on: Run
) -> None:
    came = coffee_on(deserted.url, SMALL, {**SHORT, **deserted.secret})

    (complaint,) = came.complaints
    assert complaint["required"] == "1 task slot on an executor of 512 MiB"
    assert complaint["available"] == "0 within 8 s: no worker has registered with the master"


def test_a_connect_server_without_executors_is_refused_within_a_bound(
    deserted: Cluster, folder: Path, coffee_on: Run
) -> None:
    with running_connect_server(deserted, SMALL, folder / "deserted.log") as url:
        came = coffee_on(url, {}, SHORT, only_asks=True)

    (complaint,) = came.complaints
    assert complaint["required"] == "1 task slot on an executor of 512 MiB"
    assert complaint["available"] == "0 within 8 s"


@pytest.mark.parametrize("scheme", ["spark", "sc"])
def test_an_address_without_a_listener_is_refused_at_once(scheme: str, coffee_on: Run) -> None:
    came = coffee_on(f"{scheme}://127.0.0.1:9")  # a port that nobody is given

    assert came.error == "SparkUnavailable"
    assert "nothing listens on 127.0.0.1:9" in came.message


def test_sail_is_refused_with_everything_that_it_lacks(folder: Path, coffee_on: Run) -> None:
    with running_sail(folder / "sail.log") as url:
        came = coffee_on(url, {})

    assert came.error == "EngineUnfit"
    assert "a Connect server that is not Spark" in came.message
    assert {it["what"] for it in came.complaints} == {
        "overflow",
        "sums",
        "hashes",
        "decimals",
        "file names",
    }
