"""A worker whose group has lost its coordinator works on: slower, never wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.runtime.shop import Client, shop
from tests.waiting import wait_until
from tidegate.group import Coordinator, new_secret
from tidegate.plan import physical_plan
from tidegate.runtime.cluster import discovery
from tidegate.runtime.cluster.discovery import GroupAddress
from tidegate.runtime.cluster.peer import GroupPeer
from tidegate.runtime.deployment import open_deployment
from tidegate.runtime.ingestion.run_service import RunService
from tidegate.runtime.task_graph import build_task_graph
from tidegate.spark import Session
from tidegate.store import Notifications

BOUND = 180.0


def no_session() -> Session:
    raise AssertionError("what this client delivers needs no Spark")


@contextmanager
def worker(deployment: Path, place: GroupAddress) -> Iterator[subprocess.Popen[bytes]]:
    """One that was started by hand, and joins by the address."""
    asked = [
        sys.executable,
        "-m",
        "tidegate",
        "worker",
        "tests.integration.http.declared:pipeline",
    ]
    asked += ["--deployment", str(deployment), "--name", "worker-1", "--spark", "local[1]"]
    asked += ["--group", place.address]
    given = {**os.environ, discovery.SECRET: place.secret.decode()}
    with (deployment / "worker.log").open("wb") as log:
        process = subprocess.Popen(asked, env=given, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.mark.timeout(600)
def test_a_run_completes_without_a_coordinator_and_the_worker_joins_the_next_one(
    deployment: Path, tmp_path: Path
) -> None:
    secret = new_secret()
    deployment.mkdir(exist_ok=True)
    first = Coordinator("tcp://127.0.0.1:0", secret=secret)
    place = GroupAddress(first.address, secret)
    with (
        open_deployment(deployment) as opened,
        Notifications(opened.database) as notifications,
        worker(deployment, place) as process,
    ):
        chief = GroupPeer.join("chief", place)
        chief.group.wait_for(["worker-1"], BOUND)
        first.close()
        server = RunService(
            opened, shop(), build_task_graph(physical_plan(shop())), no_session, notifications
        )
        client = Client(server, "march", tmp_path)
        client.sell()
        server.wait("march", BOUND)
        with Coordinator(place.address, secret=secret):
            chief.group.wait_for(["worker-1", "chief"], BOUND)
            assert chief.fence("together again").is_satisfied
            process.terminate()
            assert chief.wait_until_gone("worker-1", BOUND)
        chief.group.close()
        process.wait(60)
    assert process.returncode == 0
    wait_until(lambda: "handed over" in (deployment / "worker.log").read_text())
