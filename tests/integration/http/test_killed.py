"""`tidegate serve` is killed in the middle of a submit and started again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
from typer.testing import CliRunner

from tests.waiting import wait_until
from tidegate.cli import app
from tidegate.runtime.cluster.exit_reason import last_error

ROOT = Path(__file__).parents[3]
LONG = 240
"""Seconds for what takes a few on an idle machine: Spark starts twice."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
    return port


@contextmanager
def serve(deployment: Path, port: int, crash_at: str = "") -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tidegate", "serve"]
    command += ["tests.integration.http.declared:pipeline", "--deployment", str(deployment)]
    command += ["--listen", f"127.0.0.1:{port}", "--spark", "local[2]"]
    environment = {**os.environ, "TIDEGATE_CRASH_AT": crash_at}
    environment.pop("TIDEGATE_DATABASE", None)
    with (deployment / "log").open("ab") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.mark.timeout(2 * LONG)
@pytest.mark.parametrize("point", ["chunk.after_commit:2"])
def test_a_server_that_is_killed_between_a_commit_and_its_answer_is_not_noticed_by_its_client(
    point: str, deployment: Path, tmp_path: Path
) -> None:
    data, out, port = tmp_path / "files", tmp_path / "out", free_port()
    for number in (1, 2, 3):
        write(data / f"sales/{number}.csv", f"item_id,quantity\n1,{number}00\n")
    write(data / "items/1.csv", "item_id,item_name\n1,tea\n")
    command = [sys.executable, "-m", "tidegate", "submit", "shop", "--run", "march", "--wait"]
    command += ["--data", str(data), "--out", str(out), "--patience", str(LONG)]
    command += ["--server", f"http://127.0.0.1:{port}"]
    with serve(deployment, port, point) as first:
        client = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            assert first.wait(LONG) == -signal.SIGKILL, (deployment / "log").read_text()
            with serve(deployment, port):
                said, _ = client.communicate(timeout=LONG)
        finally:
            client.kill()
            client.wait()
    assert client.returncode == 0, said.decode() + (deployment / "log").read_text()
    assert (out / "best.csv").read_text() == "item_name,sold\ntea,600000\n"
    uploads = deployment / "data" / "uploads"
    assert list(uploads.iterdir()) == [], "the second server has tidied up, for the first one too"
    assert (out / "bulk.csv").read_text() == "item_id,quantity\n1,200\n1,300\n"


@pytest.mark.timeout(LONG)
def test_a_server_whose_jvm_was_killed_ends_at_once_with_the_reason(deployment: Path) -> None:
    log = deployment / "log"
    with serve(deployment, free_port()) as process:
        wait_until(
            lambda: "stop with Ctrl-C" in log.read_text() or process.poll() is not None, LONG
        )
        (java,) = [it for it in psutil.Process(process.pid).children() if it.name() == "java"]
        java.kill()
        assert process.wait(30) == 1, log.read_text()
    assert f"Java (pid {java.pid}) ended with signal 9 (killed)" in last_error(log.read_text())


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_an_open_address_without_tokens_is_refused_before_anything_starts(tmp_path: Path) -> None:
    given = ["serve", "coffee", "--deployment", str(tmp_path / "none")]
    answer = CliRunner().invoke(app, [*given, "--listen", "0.0.0.0:0"])
    assert answer.exit_code == 2
    assert "can be reached from other machines" in answer.stderr
    assert not (tmp_path / "none").exists()
    answer = CliRunner().invoke(app, [*given, "--tokens", str(tmp_path / "nowhere")])
    assert answer.exit_code == 2
