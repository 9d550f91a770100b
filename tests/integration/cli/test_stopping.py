"""Ctrl-C to a process of a deployment: it finishes what is at work, or never begins."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.waiting import wait_until

PIPELINE = "tests.integration.http.declared:pipeline"
BOUND = 180.0
LOADING = "import signal\nprint('loading', flush=True)\nsignal.pause()\n"


@contextmanager
def started(
    log: Path, *arguments: str, cwd: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process of a deployment, started by hand."""
    with log.open("wb") as opened:
        asked = [sys.executable, "-m", "tidegate", *arguments]
        process = subprocess.Popen(asked, stdout=opened, stderr=opened, cwd=cwd)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "asked",
    [
        ["monitor", PIPELINE],
        ["worker", PIPELINE, "--spark", "local[1]"],
        ["serve", PIPELINE, "--spark", "local[1]", "--listen", "127.0.0.1:0"],
    ],
    ids=lambda asked: str(asked[0]),
)
def test_ctrl_c_lets_a_process_finish_and_say_so(
    asked: list[str], deployment: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with started(log, *asked, "--deployment", str(deployment)) as process:
        wait_until(
            lambda: "stop with Ctrl-C" in log.read_text() or process.poll() is not None, BOUND
        )
        process.send_signal(signal.SIGINT)
        assert process.wait(BOUND) == 0, log.read_text()
    assert "all running jobs were finished and their tasks handed over" in log.read_text()


def test_ctrl_c_ends_a_process_that_only_starts(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(LOADING)
    log, asked = tmp_path / "log", ["worker", "slow:pipeline", "--deployment", str(tmp_path)]
    with started(log, *asked, cwd=tmp_path) as process:
        wait_until(lambda: "loading" in log.read_text(), BOUND)
        process.send_signal(signal.SIGINT)
        assert process.wait(BOUND) == 130
    assert log.read_text().splitlines() == ["loading", "interrupted"]


def java_of(pid: int) -> bool:
    """Whether a process has started Java."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    with suppress(FileNotFoundError):  # one that has ended meanwhile
        return any(Path(f"/proc/{it}/comm").read_text() == "java\n" for it in children)
    return False


@pytest.mark.timeout(600)
def test_ctrl_c_while_spark_starts_leaves_no_traceback(deployment: Path, tmp_path: Path) -> None:
    log, asked = tmp_path / "log", ["worker", PIPELINE, "--spark", "local[1]"]
    with started(log, *asked, "--deployment", str(deployment)) as process:
        wait_until(lambda: java_of(process.pid), BOUND)
        process.send_signal(signal.SIGINT)
        assert process.wait(BOUND) == 130
    said = log.read_text()
    assert said.splitlines()[-1] == "interrupted"
    assert "Traceback" not in said
    assert "Exception" not in said
