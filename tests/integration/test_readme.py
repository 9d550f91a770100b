"""The examples of the README and of docs/ run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

import tidegate as tg
from tidegate.spark import Session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROOT = Path(__file__).parents[2]
SALES = """item_id,quantity,sold_at
1,2,2025-03-01 10:00:00
2,3,2025-03-02 10:00:00
1,2,2025-03-03 10:00:00
2,9,2024-03-03 10:00:00
"""


@pytest.fixture
def page(tmp_path: Path, deployment: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that examples name, as the working directory."""
    (tmp_path / "sales-1.csv").write_text(SALES)
    monkeypatch.chdir(tmp_path)
    return deployment


def run_blocks(file: str, deployment: Path) -> dict[str, object]:
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / file).read_text(), re.DOTALL):
        here = block.replace('"deployment"', repr(str(deployment)))
        exec(compile(here, file, "exec"), names)
    return names


def test_the_examples_of_the_readme_run_one_after_the_other(spark: Session, page: Path) -> None:
    names = run_blocks("README.md", page)
    results = cast("tg.Results", names["results"])
    assert [tuple(it) for it in results["best_selling"].to_df().collect()] == [("2025-03", 1, 4)]
    assert [tuple(it) for it in cast("DataFrame", names["final"]).collect()] == [("2025-03", 1, 4)]


@pytest.mark.parametrize("file", ["docs/pipelines.md", "docs/groups.md"])
def test_the_examples_of_a_page_run(file: str, spark: Session, page: Path) -> None:
    assert run_blocks(file, page)
