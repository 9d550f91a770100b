"""The same code over Spark Connect: analysis, stages, an exchange, the reference.

In a process of its own, because a process has either a classic session or a Connect one.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.timeout(300)
def test_the_core_path_runs_over_connect_with_the_results_of_plain_spark(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-m", "tests.integration.spark.over_connect"]
    done = subprocess.run(
        [*command, str(tmp_path)],
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
        "refused UNRESOLVED_COLUMN.WITH_SUGGESTION",
        "columns (('item', 'string'), ('mean', 'decimal(22,6)'), ('sales', 'bigint'))",
        "failed CAST_OVERFLOW",
        "same",
    ]
