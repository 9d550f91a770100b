"""What the README shows runs as it stands there, on real Spark and PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from tidegate.spark import Batch, Session

README = Path(__file__).parents[2] / "README.md"
SALES = """item_id,quantity,sold_at
1,2,2025-03-01 10:00:00
2,3,2025-03-02 10:00:00
1,2,2025-03-03 10:00:00
2,9,2024-03-03 10:00:00
"""


def test_the_examples_of_the_readme_run_one_after_the_other(
    spark: Session, tmp_path: Path, deployment: Path
) -> None:
    (tmp_path / "sales-1.csv").write_text(SALES)
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL):
        here = block.replace('"sales-1.csv"', repr(str(tmp_path / "sales-1.csv")))
        here = here.replace('"deployment"', repr(str(deployment)))
        exec(compile(here, str(README), "exec"), names)
    results = cast("Mapping[str, list[Batch]]", names["results"])
    files = [f"{deployment}/data/{file}" for it in results["best_selling"] for file in it.files]
    assert spark.read.parquet(*files).collect() == [("2025-03", 1, 4)]
    assert names["size"] == 10 * len("page-0") + 90 * len("page-10") + 150 * len("page-100")
