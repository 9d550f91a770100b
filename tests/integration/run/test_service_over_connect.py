"""A served pipeline over Spark Connect: chunks, END, the monitor's release, results.

In a process of its own, because a process has either a classic session or a Connect one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import temporary_folder

ROOT = Path(__file__).parents[3]


@pytest.fixture
def folder() -> Iterator[Path]:
    with temporary_folder() as folder:
        yield folder


@pytest.mark.timeout(300)
def test_a_pipeline_is_served_over_connect_and_gives_the_same_results(folder: Path) -> None:
    command = [sys.executable, "-W", "error", "-m", "tests.integration.run.served_over_connect"]
    done = subprocess.run(
        [*command, str(folder)],
        capture_output=True,
        text=True,
        timeout=280,
        cwd=ROOT,
        # PySpark takes any free port then, instead of one that somebody else may be using.
        env={**os.environ, "SPARK_TESTING": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines() == [
        "pyspark.sql.connect.session",
        "before END open",
        "tea complete",
        "beans complete",
        "too many failed",
        "tea {'best': [('tea', 10000)], 'bulk': []}",
        "beans {'best': [('beans', 200000)], 'bulk': [(3, 200)]}",
        "too many {}",
    ]
