"""The coffee pipeline alive on Spark: stages as jobs, the plan's own barriers, all sinks at END."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import tidegate as tg
from tidegate.errors import RefusedBySpark
from tidegate.run.workshop import SparkWorkshop
from tidegate.spark import Batch, Session, reference
from tidegate_examples.coffee import pipeline
from tidegate_examples.coffee.data import Size, write

Files = Mapping[str, Sequence[str]]


def deliver(folder: Path, size: Size, seed: int) -> Files:
    write(folder, size, seed)
    return {
        source: sorted(str(file) for file in (folder / source).glob("*.csv"))
        for source in pipeline.sources
    }


def rows(session: Session, batches: Sequence[Batch]) -> Counter[tuple[object, ...]]:
    files = [file for batch in batches for file in batch.files]
    return Counter(tuple(row) for row in session.read.parquet(*files).collect() if files)


def test_two_runs_at_once_give_what_plain_spark_gives_and_an_empty_one_is_published_too(
    spark: Session, tmp_path: Path
) -> None:
    clients = {
        "small": deliver(tmp_path / "small", Size(200, files=1), seed=1),
        "large": deliver(tmp_path / "large", Size(3_000, files=2), seed=2),
    }
    workshop = SparkWorkshop(pipeline, spark, str(tmp_path / "batches"), shards=2)
    with workshop.start() as live:
        for run in (*clients, "empty"):
            live.begin(run)
        for run, files in clients.items():
            for source, chunks in files.items():
                for chunk in chunks:
                    live.send(source, workshop.chunk(source, chunk), run)
        receipts = [live.end(run) for run in (*clients, "empty")]
        for receipt in receipts:
            receipt.wait(timeout=300)
        assert live.error is None
    published = workshop.results.published
    assert published["empty"] == {sink: [] for sink in pipeline.sinks}
    for run, files in clients.items():
        for sink, expected in reference(spark, pipeline, files).items():
            assert rows(spark, published[run][sink]) == Counter(map(tuple, expected.collect()))
            assert sum(batch.rows for batch in published[run][sink]) > 0


def test_what_spark_refuses_is_reported_at_start_up_with_the_users_line(
    spark: Session, tmp_path: Path
) -> None:
    shop = tg.Pipeline("shop")
    sales = shop.source("sales", "id bigint, amount bigint")
    sales.filter("amuont > 0").sink("wrong")  # the line that is reported
    with pytest.raises(RefusedBySpark) as refused:
        SparkWorkshop(shop, spark, str(tmp_path))
    assert refused.value.at.text.endswith("# the line that is reported")
    assert list(tmp_path.iterdir()) == []
