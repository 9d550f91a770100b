"""A run that ends the Java of its workers, in a deployment of real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.errors import RunFailed
from tidegate.http import HttpClient, HttpRunClient, http_run_client
from tidegate.runtime.ingestion.folder_run import ProgressListener, RunOptions, chunks_of, send
from tidegate.testing import ChaosCluster

BOUND = 240.0
"""Seconds for anything that has to happen; far more than it takes."""


def sent(server: HttpRunClient, name: str, folder: Path, quantity: int) -> None:
    """Everything of a run, its END included."""
    file = folder / name / "sales" / "1.csv"
    file.parent.mkdir(parents=True)
    file.write_text(f"item_id,quantity\n1,{quantity}\n")
    chunks = chunks_of(folder / name, server.served.sources)
    send(server, chunks, RunOptions(name), ProgressListener())


@pytest.mark.timeout(3 * BOUND)
def test_a_run_that_ends_the_java_of_its_workers_fails_and_the_others_are_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_RUN_LOSSES", "1")
    pipeline = "tests.integration.cluster.deadly:pipeline"
    cluster = ChaosCluster(pipeline, tmp_path, monitors=0, shards=1)
    with cluster.up() as peer:
        server = http_run_client(
            HttpClient(f"http://{cluster.url}", None, BOUND), lambda served: served
        )
        sent(server, "bad", tmp_path, -1)
        for number in range(5):
            sent(server, f"good-{number}", tmp_path, 7)
        for number in range(5):
            server.wait(f"good-{number}", BOUND)
            server.write(f"good-{number}", "total", tmp_path / "total.csv")
            assert (tmp_path / "total.csv").read_text() == "item_id,sold\n1,7\n"
        with pytest.raises(RunFailed) as failed:
            server.wait("bad", BOUND)
        peer.leave()
    assert "1 lost while it was processed alone, the last in task" in failed.value.cause
    assert "exit code 3" in failed.value.cause
    logs = cluster.deployment / "logs"
    reported = "".join((logs / f"worker-{number}.log").read_text() for number in (1, 2))
    assert "while it processed run 'local/bad'" in reported
    assert "while it processed run 'local/good" not in reported
    assert (
        "failed with exit code 1 (Spark has ended in this process: Java"
        in (tmp_path / "up.log").read_text()
    )
