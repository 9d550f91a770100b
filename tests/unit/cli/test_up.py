"""`tidegate up` and `drain`: what is refused before anything is started."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import NoReturn

import pytest
from typer.testing import CliRunner, Result

from tidegate.cli import app
from tidegate.errors import NoSecret
from tidegate.runtime.cluster.file_lock import exclusive_use
from tidegate.runtime.cluster.local_cluster import ClusterSpec


def invoked(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(it) for it in arguments])


def test_several_workers_on_a_cluster_have_to_share_it(tmp_path: Path) -> None:
    done = invoked("up", "coffee", "--deployment", tmp_path / "d", "--spark", "spark://h:7077")

    assert done.exit_code == 2
    assert "--cores" in done.stderr
    assert not (tmp_path / "d").exists()


def test_an_address_that_others_reach_needs_tokens(tmp_path: Path) -> None:
    done = invoked("up", "coffee", "--deployment", tmp_path / "d", "--listen", "0.0.0.0:8420")

    assert done.exit_code != 0
    assert "--tokens" in done.stderr
    assert not (tmp_path / "d").exists()


def test_the_size_limit_of_chunks_is_passed_to_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[ClusterSpec] = []

    def refuse(wanted: ClusterSpec, *_: object) -> NoReturn:
        asked.append(wanted)
        raise NoSecret("here", "THIS")

    monkeypatch.setattr("tidegate.runtime.cluster.local_cluster.local_cluster", refuse)
    monkeypatch.setattr("tidegate.runtime.deployment.open_deployment", lambda *_: nullcontext())
    invoked("up", "coffee", "--deployment", tmp_path, "--max-chunk-mb", 7)

    (server,) = [spec.command for spec in asked[0].process_specs() if spec.name == "server"]
    assert " --max-chunk-mb 7" in " ".join(server)


def test_draining_needs_a_coordinator(tmp_path: Path) -> None:
    done = invoked("drain", "worker-1", "--deployment", tmp_path)

    assert done.exit_code == 1
    assert "tidegate up" in done.stderr


def test_a_worker_elsewhere_needs_the_secret(tmp_path: Path) -> None:
    address = "tcp://127.0.0.1:7001"
    done = invoked("drain", "worker-1", "--deployment", tmp_path, "--group", address)

    assert done.exit_code == 1
    assert "TIDEGATE_SECRET" in done.stderr


def test_a_deployment_is_run_by_one_up_at_a_time(tmp_path: Path) -> None:
    with exclusive_use(tmp_path):
        done = invoked("up", "coffee", "--deployment", tmp_path)

    assert done.exit_code == 1
    assert f"{tmp_path} is already served by `tidegate up` (pid {os.getpid()})" in done.stderr
    assert not (tmp_path / "group.json").exists()


def test_one_that_was_killed_is_in_nobodys_way(tmp_path: Path) -> None:
    program = f"""
import os, signal, subprocess, sys
from pathlib import Path
from tidegate.runtime.cluster.file_lock import exclusive_use
with exclusive_use(Path({str(tmp_path)!r})):
    subprocess.Popen([sys.executable, "-c", "import os; os.read(0, 1)"], stdin=subprocess.PIPE)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program], check=False, timeout=60)
    assert (tmp_path / "up.lock").read_text()

    with exclusive_use(tmp_path):
        assert (tmp_path / "up.lock").read_text() == str(os.getpid())
