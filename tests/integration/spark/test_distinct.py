"""Distinct rows: across chunks, shards and runs, of values that are easily taken for different."""

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.sql import DataFrame

import tidegate as tg
from tests.integration.spark.execution import Execution, execute_runs
from tests.integration.spark.rows import content
from tidegate.errors import RefusedBySpark
from tidegate.plan import physical_plan
from tidegate.plan.physical import FinalDistinct
from tidegate.spark import JobInput, Session, analyze, prepare, reference, run_stage_job
from tidegate.spark.jobs.compact_state import compacting
from tidegate.spark.jobs.exchange import read

SCHEMA = pa.schema({
    "k": pa.string(), "price": pa.decimal128(10, 2), "weight": pa.float64(),
    "tags": pa.list_(pa.string()), "at": pa.struct({"x": pa.float64(), "y": pa.int32()}),
})  # fmt: skip
DECLARED = """k string, price decimal(10,2), weight double, tags array<string>,
    at struct<x: double, y: int>"""
NUMBERS = [0.0, -0.0, float("nan"), -float("nan"), 1.5, None]


def with_half(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("*", "weight / 2 half")


def pipeline() -> tg.Pipeline:
    shop = tg.Pipeline("shop")
    sales = shop.source("sales", DECLARED)
    returns = shop.source("returns", "K string, weight double")
    sales.distinct().sink("rows")
    # A planner does not know the columns that a function adds.
    sales.transform(with_half).distinct().select("k").sink("functions")
    both = sales.select("k", "weight").union(returns).distinct()
    both.aggregate(by="k", n="count(*)").sink("counts")
    both.distinct().top(3, by="weight desc").distinct().sink("again")
    sales.aggregate(by="k", n="count(*)").select("n").distinct().sink("numbers")
    both.join(sales.select("k").distinct(), on="k", how="left").sink("joined")
    return shop


def row(chance: random.Random) -> dict[str, object]:
    return {
        "k": chance.choice(["a", "A", "", None]),
        "price": None,
        "weight": chance.choice(NUMBERS),
        "tags": chance.choice([None, [], ["x", None]]),
        "at": chance.choice([None, {"x": chance.choice(NUMBERS), "y": None}]),
    }


def files_of(folder: Path, seed: int, chunks: int = 5) -> dict[str, list[str]]:
    """Chunks with many equal rows; `returns` has two columns of them."""
    chance = random.Random(seed)
    folder.mkdir(parents=True)
    given: dict[str, list[str]] = {"sales": [], "returns": []}
    for number in range(chunks):
        table = pa.Table.from_pylist([row(chance) for _ in range(40)], SCHEMA)
        returned = table.select(["k", "weight"]).rename_columns(["K", "weight"])
        for name, rows in (("sales", table), ("returns", returned)):
            given[name].append(str(folder / f"{name}-{number}.parquet"))
            pa.parquet.write_table(rows, given[name][-1])
    return given


def as_text(rows: DataFrame) -> list[str]:
    """Rows to compare: as text, because NaN is not equal to itself in Python."""
    return [repr(row) for row in content(rows)]


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.timeout(300)
def test_each_row_is_kept_once_whatever_the_chunks_shards_and_other_runs(
    spark: Session, tmp_path: Path, shards: int
) -> None:
    # Runs 1 and 2 have the same rows and share jobs: neither may lose rows to the other.
    given = {run: files_of(tmp_path / str(run), seed=(run + 1) // 2) for run in (1, 2, 3)}
    found = execute_runs(spark, pipeline(), given, str(tmp_path / "out"), shards, seed=shards)
    for run, sources in given.items():
        wanted = reference(spark, pipeline(), sources)
        assert found[run].keys() == wanted.keys()
        for sink, rows in wanted.items():
            assert found[run][sink].schema.names == rows.schema.names
            assert as_text(found[run][sink]) == as_text(rows), sink


def test_a_run_without_any_chunk_has_no_distinct_rows(spark: Session, tmp_path: Path) -> None:
    found = execute_runs(spark, pipeline(), {1: {}}, str(tmp_path), shards=2, seed=0)
    assert {sink: rows.collect() for sink, rows in found[1].items()} == {
        sink: [] for sink in found[1]
    }


def test_state_is_compacted_to_one_batch_with_each_row_once(spark: Session, tmp_path: Path) -> None:
    shop = tg.Pipeline("shop")
    shop.source("sales", DECLARED).distinct().sink("rows")
    plan = physical_plan(shop, shards=2)
    execution = Execution(spark, shop, plan, str(tmp_path / "out"), random.Random(1))
    runs = {run: {"sales": files_of(tmp_path / str(run), run)["sales"]} for run in (1, 2)}
    results = execution.execute(runs)
    final = next(
        it for it in prepare(plan, spark).values() if it.stage.operators[0] == FinalDistinct()
    )
    (edge,) = plan.arriving(final.stage)
    stored = {
        (run, to): tuple(
            made[to]
            for shard in range(2)
            for made in execution.made[edge.upstream, run, shard]
            if to in made
        )
        for run in runs
        for to in range(2)
    }
    inputs = [JobInput(run, to, (batches,)) for (run, to), batches in stored.items()]
    compacted = run_stage_job(spark, compacting(final, 0), inputs, execution.root, "w2")
    for run in runs:
        batches = [made[None] for it, made in zip(inputs, compacted, strict=True) if it.run == run]
        assert sum(batch.rows for batch in batches) < sum(
            batch.rows for it in inputs if it.run == run for batch in it.inputs[0]
        )
        kept = read(spark, execution.root, batches, final.output)
        assert as_text(kept) == as_text(results[run]["rows"])


def test_a_column_that_spark_cannot_compare_is_refused_with_its_line(spark: Session) -> None:
    shop = tg.Pipeline("shop")
    shop.source("sales", "k string, tags map<string,int>").distinct().sink("rows")
    with pytest.raises(RefusedBySpark) as refused:
        analyze(shop, spark)
    assert (refused.value.operator, refused.value.sql) == ("distinct", "*")
    assert refused.value.spark_condition == "UNSUPPORTED_FEATURE.SET_OPERATION_ON_MAP_TYPE"
