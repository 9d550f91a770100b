"""A served pipeline over Spark Connect: chunks, END, the monitor's release, results."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import temporary_folder
from tests.over_connect import said_over_connect


@pytest.fixture
def folder() -> Iterator[Path]:
    with temporary_folder() as folder:
        yield folder


@pytest.mark.timeout(300)
def test_a_pipeline_is_served_over_connect_and_gives_the_same_results(folder: Path) -> None:
    said = said_over_connect("tests.integration.runtime.served_over_connect", folder)
    assert said == [
        "pyspark.sql.connect.session",
        "before END open",
        "tea complete",
        "beans complete",
        "too many failed",
        "tea {'best': [('tea', 10000)], 'bulk': []}",
        "beans {'best': [('beans', 200000)], 'bulk': [(3, 200)]}",
        "too many {}",
        "a stream of sales is refused",
    ]
