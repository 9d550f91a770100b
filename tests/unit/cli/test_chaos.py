"""`tidegate chaos`: what it says while processes die."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidegate.cli import app
from tidegate.testing import ChaosCluster, Trial


def test_each_fault_is_printed_and_the_verdict_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trials(company: ChaosCluster, *_: object) -> Iterator[Trial]:
        yield Trial("without faults, each client alone", 0, 21.5)
        company.say("kill a worker (pid 41)")
        yield Trial("kill a worker", 1, 30.0)

    monkeypatch.setattr("tidegate.testing.chaos_of_processes", trials)
    asked = ["chaos", "coffee", "--processes", "--data", str(tmp_path)]
    done = CliRunner().invoke(app, asked)

    *told, verdict = done.stdout.splitlines()
    assert told == [
        "  21.5 s  same results  no death   without faults, each client alone",
        "          kill a worker (pid 41)",
        "  30.0 s  same results  1 death    kill a worker",
    ]
    assert verdict.startswith("passed: after 1 death in 52 s all results have the bytes that")
