"""`tidegate init` writes a project that runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from tidegate.cli import app

BOUND = 300


def python(folder: Path, *arguments: str) -> str:
    command = (sys.executable, "-m", *arguments)
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=BOUND, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_project_runs_and_its_test_passes(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    written = CliRunner().invoke(app, ["init", str(folder)])
    assert written.exit_code == 0, written.output
    assert len((folder / "README.md").read_text().splitlines()) <= 10
    python(folder, "tidegate", "run", "shop:pipeline", "--data", "data", "--out", "out")
    best = (folder / "out/best_selling.csv").read_text()
    assert best == "month,item_name,sold\n2025-01,tea,9\n2025-02,coffee,12\n"
    assert "1 passed" in python(folder, "pytest", "-q", "-p", "no:cacheprovider")
