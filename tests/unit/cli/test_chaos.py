"""`tidegate chaos`: its output during trials."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidegate.cli import app
from tidegate.testing import ChaosCluster, Trial


def test_each_fault_is_printed_when_it_is_injected_and_a_summary_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trials(cluster: ChaosCluster, *_: object) -> Iterator[Trial]:
        yield Trial("without faults, each client alone", 0, 21.5)
        cluster.on_fault("kill a worker (pid 41)")
        yield Trial("kill a worker", 1, 30.0)

    monkeypatch.setattr("tidegate.testing.cluster_trials", trials)
    asked = ["chaos", "coffee", "--processes", "--data", str(tmp_path)]
    done = CliRunner().invoke(app, asked)

    *lines, summary = done.stdout.splitlines()
    assert lines == [
        "  21.5 s  same results  no kill    without faults, each client alone",
        "          kill a worker (pid 41)",
        "  30.0 s  same results  1 kill     kill a worker",
    ]
    assert summary.startswith("passed: after 1 kill in 52 s all results have the bytes that")
