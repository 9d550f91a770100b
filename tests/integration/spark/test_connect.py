"""The same code over Spark Connect: analysis, stages, an exchange, the reference."""

from pathlib import Path

import pytest

from tests.over_connect import said_over_connect


@pytest.mark.timeout(300)
def test_the_core_path_runs_over_connect_with_the_results_of_plain_spark(tmp_path: Path) -> None:
    said = said_over_connect("tests.integration.spark.over_connect", tmp_path)
    assert said == [
        "refused UNRESOLVED_COLUMN.WITH_SUGGESTION",
        "columns (('item', 'string'), ('mean', 'decimal(22,6)'), ('sales', 'bigint'))",
        "failed CAST_OVERFLOW",
        "same",
    ]
