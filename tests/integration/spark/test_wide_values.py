"""Values within the limits of a chunk do not end the Spark that stores and writes them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.integration.spark import wide_values


def test_more_large_values_than_spark_has_memory_for_are_stored_and_written(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", wide_values.__name__, str(tmp_path)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=110)
    assert ended.returncode == 0, ended.stderr[-2000:]
    out = tmp_path / "out.csv"
    assert out.stat().st_size > wide_values.ROWS * wide_values.SIZE
    out.unlink()
