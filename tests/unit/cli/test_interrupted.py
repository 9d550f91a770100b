"""Ctrl-C ends a command at once, with a sentence and without a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.unit.http.stub import LOST, answering
from tests.waiting import wait_until

BOUND = 60.0
LOADING = "import signal\nprint('loading', flush=True)\nsignal.pause()\n"


def started(*arguments: str, path: Path | None = None) -> subprocess.Popen[str]:
    """The command; modules in `path` come before others."""
    given = {**os.environ, **({"PYTHONPATH": str(path)} if path else {})}
    asked = [sys.executable, "-m", "tidegate", *arguments]
    return subprocess.Popen(
        asked, text=True, env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_an_interrupt_while_modules_are_loaded_prints_nothing(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text(LOADING)
    with started("--version", path=tmp_path) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == "loading\n"
        command.send_signal(signal.SIGINT)
        _, said = command.communicate(timeout=BOUND)
    assert (command.returncode, said) == (130, "")


def test_an_interrupted_submit_reports_how_to_resume(tmp_path: Path) -> None:
    given = ["submit", "shop", "--run", "march", "--data", str(tmp_path)]
    with answering(LOST) as stub, started(*given, "--server", stub.url) as command:
        wait_until(lambda: bool(stub.asked), BOUND)
        command.send_signal(signal.SIGINT)
        _, said = command.communicate(timeout=BOUND)
    assert command.returncode == 130
    assert said.splitlines()[-1] == "interrupted: repeat the command to resume"
    assert "Traceback" not in said
