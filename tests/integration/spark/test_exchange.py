"""Batches: written once, by shard, counted without Spark, read with the schema of their writer."""

from pathlib import Path

from tests.integration.spark.rows import content
from tidegate.spark import Batch, Route, Session
from tidegate.spark.exchange import read, write


def test_rows_go_to_the_shard_of_their_key_nulls_too(spark: Session, tmp_path: Path) -> None:
    rows = spark.sql("select if(id % 5 = 0, null, id % 7) k, cast(id as string) v from range(100)")
    batches = write(rows, str(tmp_path), Route(("k",), 3))
    assert set(batches) <= {0, 1, 2}
    assert sum(batch.rows for batch in batches.values()) == 100
    shards = {
        shard: {key for key, _ in content(read(spark, [batch], rows.schema))}
        for shard, batch in batches.items()
    }
    keys = [key for found in shards.values() for key in found]
    assert sorted(keys, key=repr) == [0, 1, 2, 3, 4, 5, 6, None]


def test_every_write_has_a_folder_of_its_own_and_no_rows_give_no_batch(
    spark: Session, tmp_path: Path
) -> None:
    rows = spark.sql("select 1 k")
    first, second = (write(rows, str(tmp_path))[None] for _ in range(2))
    assert (first.rows, second.rows) == (1, 1)
    assert not set(first.files) & set(second.files)
    assert write(rows.where("k > 1"), str(tmp_path)) == {}
    assert write(rows.where("k > 1"), str(tmp_path), Route(("k",), 2)) == {}


def test_rows_without_keys_all_go_to_the_first_shard(spark: Session, tmp_path: Path) -> None:
    assert list(write(spark.range(5).toDF("n"), str(tmp_path), Route((), 4))) == [0]


def test_types_survive_the_files_and_their_absence(spark: Session, tmp_path: Path) -> None:
    rows = spark.sql(
        "select hll_sketch_agg('x') sketch, cast(1 as decimal(38,18)) d, cast(2 as tinyint) t,"
        " timestamp_ntz'2024-01-01' n, interval '3' day i, array(struct(1 as a)) s"
    )
    batch = write(rows, f"file://{tmp_path}")[None]
    assert content(read(spark, [batch], rows.schema)) == content(rows)
    nothing = read(spark, [], rows.schema)
    assert (nothing.dtypes, nothing.collect()) == (rows.dtypes, [])
    assert read(spark, [Batch((), 0)], rows.schema).dtypes == rows.dtypes
