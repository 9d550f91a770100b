"""Runs a module of the tests over Spark Connect, in a process of its own.

A process has either a classic session or a Connect one, and the tests share a classic one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def said_over_connect(module: str, folder: Path) -> list[str]:
    """The lines that a module prints, given a folder to work in."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", module, str(folder)],
        capture_output=True,
        text=True,
        timeout=280,
        cwd=ROOT,
        # PySpark takes any free port then, instead of one that somebody else may be using.
        env={**os.environ, "SPARK_TESTING": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.splitlines()
