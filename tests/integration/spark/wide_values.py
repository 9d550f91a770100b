"""Stores and writes more large values than a Spark has memory for, in a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path

from tidegate.dataflow import Batch
from tidegate.spark import open_session
from tidegate.spark.results.csv_result import write_csv_by_spark

ROWS, SIZE = 100, 7_000_000


def main(folder: Path) -> None:
    spark = open_session("local[1]", settings={"spark.driver.memory": "600m"})
    rows = spark.range(ROWS).selectExpr("id", f"repeat('y', {SIZE}) AS name").coalesce(1)
    rows.write.parquet(f"file://{folder}/stored")
    (part,) = (folder / "stored").glob("part-*")
    batch = Batch((f"stored/{part.name}",), ROWS, part.stat().st_size)
    write_csv_by_spark(spark, str(folder), [batch], rows.schema, folder / "out.csv")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
