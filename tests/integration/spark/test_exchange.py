"""Batches: written once, by place, counted without Spark, read with the schema of their writer."""

from pathlib import Path

from pyspark.sql import DataFrame

from tests.integration.spark.rows import content
from tidegate.dataflow import Batch
from tidegate.spark import Route, Session
from tidegate.spark.jobs.exchange import BatchKey, read, write
from tidegate.spark.jobs.tags import Tags

ALONE = Tags(run=4, shard=1)


def written(rows: DataFrame, root: object, route: Route | None = None) -> dict[BatchKey, Batch]:
    return write(rows, rows.columns, ALONE.levels(route), str(root), "worker-1")


def test_rows_go_to_the_shard_of_their_key_nulls_too(spark: Session, tmp_path: Path) -> None:
    rows = spark.sql("select if(id % 5 = 0, null, id % 7) k, cast(id as string) v from range(100)")
    batches = written(rows, tmp_path, Route(("k",), 3))
    assert batches.keys() <= {BatchKey(4, 1, to) for to in range(3)}
    assert sum(batch.rows for batch in batches.values()) == 100
    found = [
        {key for key, _ in content(read(spark, str(tmp_path), [batch], rows.schema))}
        for batch in batches.values()
    ]
    keys = [key for shard in found for key in shard]
    assert sorted(keys, key=repr) == [0, 1, 2, 3, 4, 5, 6, None]


def test_every_write_has_a_folder_of_its_own_and_no_rows_give_no_batch(
    spark: Session, tmp_path: Path
) -> None:
    rows = spark.sql("select 1 k")
    first, second = (written(rows, tmp_path)[BatchKey(4, 1, 1)] for _ in range(2))
    assert (first.rows, second.rows) == (1, 1)
    assert not set(first.files) & set(second.files)
    assert written(rows.where("k > 1"), tmp_path) == {}
    assert written(rows.where("k > 1"), tmp_path, Route(("k",), 2)) == {}


def test_paths_say_whose_rows_they_hold_and_start_at_the_root(
    spark: Session, tmp_path: Path
) -> None:
    ((place, batch),) = written(spark.range(5).coalesce(1), tmp_path, Route((), 4)).items()
    (file,) = batch.files
    writer, attempt, *places = Path(file).parts[1:-1]
    assert (writer, len(attempt)) == ("worker-1", 32)
    assert places == ["run=4", "from=1", "to=0"]
    assert place == BatchKey(4, 1, 0)
    assert batch.bytes == (tmp_path / file).stat().st_size


def test_users_may_have_columns_with_the_names_of_folders(spark: Session, tmp_path: Path) -> None:
    rows = spark.sql("select id run, id + 1 `FROM`, id + 2 `to`, id tidegate_to from range(9)")
    batches = written(rows, tmp_path, Route(("run",), 2))
    assert set(batches) == {BatchKey(4, 1, 0), BatchKey(4, 1, 1)}
    assert content(read(spark, str(tmp_path), batches.values(), rows.schema)) == content(rows)


def test_types_survive_the_files_and_their_absence(spark: Session, tmp_path: Path) -> None:
    rows = spark.sql(
        "select hll_sketch_agg('x') sketch, cast(1 as decimal(38,18)) d, cast(2 as tinyint) t,"
        " timestamp_ntz'2024-01-01' n, interval '3' day i, array(struct(1 as a)) s"
    )
    root = f"file://{tmp_path}/"
    (batch,) = written(rows, root).values()
    assert content(read(spark, root, [batch], rows.schema)) == content(rows)
    nothing = read(spark, root, [], rows.schema)
    assert (nothing.dtypes, nothing.collect()) == (rows.dtypes, [])
    assert read(spark, root, [Batch((), 0)], rows.schema).dtypes == rows.dtypes
