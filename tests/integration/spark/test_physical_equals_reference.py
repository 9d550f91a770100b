"""Sharded, chunked and merged, a pipeline gives what plain Spark gives in one go."""

import random
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from pyspark.sql import DataFrame

import tidegate as tg
from tests.integration.spark.execution import execute, execute_runs
from tests.integration.spark.rows import assert_same
from tidegate.pipeline import Pipeline
from tidegate.spark import Session, reference

SALES = pa.schema({
    "sale_id": pa.int64(), "store_id": pa.int64(), "item": pa.string(), "quantity": pa.int32(),
    "price": pa.decimal128(18, 4), "paid": pa.decimal128(10, 2), "weight": pa.float64(),
    "gift": pa.bool_(), "sold_at": pa.timestamp("us"),
})  # fmt: skip
STORES = pa.schema({"store_id": pa.int64(), "city": pa.string()})
ITEMS = ["tea", "milk", "rye", "", None]


def with_hours(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("*", "hour(sold_at) hour")


def every_operator() -> Pipeline:
    """All operators, nulls in keys, a shared stream, aggregates of every kind."""
    shop = tg.Pipeline("shop")
    sales = shop.source("sales", """
        sale_id bigint, store_id bigint, item string, quantity int, price decimal(18,4),
        paid decimal(10,2), weight double, gift boolean, sold_at timestamp_ntz""")  # fmt: skip
    returns = shop.source("returns", "store_id bigint, item string, quantity int")
    stores = shop.source("stores", "store_id bigint, city string")
    kept = sales.filter("quantity > 0 or item is null").transform(with_hours)
    totals = kept.aggregate(
        by=["store_id", "item"],
        units="sum(quantity)",
        money="sum(price * quantity)",
        mean_paid="avg(paid)",
        mean_price="avg(price) filter (where not gift)",
        mean_units="avg(quantity)",
        mean_id="avg(sale_id * 1000000000000)",
        first_sale="min(sold_at)",
        last_item="max(item)",
        gifts="count_if(gift)",
        any_gift="bool_or(gift)",
        all_gifts="bool_and(gift)",
        share="sum(paid) / count(*) + 1",
        sales="count(*)",
    )
    totals.sink("totals")
    totals.top(2, by=["units desc", "mean_paid asc"], per="store_id").sink("best")
    kept.aggregate(n="count(item)", paid="sum(paid)", mean="avg(paid)").sink("everything")
    kept.aggregate(by=["hour", "gift"]).sink("hours")
    odd = sales.filter("hash(*) % 2 = 0").aggregate(by="item", last="max(struct(*))")
    odd.select("item", h="hash(*)").sink("stars")
    moved = kept.select("store_id", "item", "quantity").union(
        returns.select("*", quantity="-quantity")
    )
    net = moved.aggregate(by="item", net="sum(quantity)")
    net.join(totals.select("item", "store_id", "sales"), on="item", how="left").sink("net")
    stores.join(totals, on="store_id", how="anti").sink("idle")
    kept.top(5, by="price desc").join(stores, on="store_id", how="full").sink("dearest")
    return shop


def sale(chance: random.Random, number: int) -> tuple[object, ...]:
    second = timedelta(seconds=chance.randrange(86_400))
    return (
        number if chance.random() < 0.9 else None,
        chance.choice([1, 2, 3, None]),
        chance.choice(ITEMS),
        chance.choice([-1, 1, 2, 3, None]),
        Decimal(chance.randint(-(10**9), 10**9)).scaleb(-4),
        Decimal(chance.randint(-(10**9), 10**9)).scaleb(-2),
        chance.random(),
        chance.choice([True, False, None]),
        datetime(2024, 1, 1) + second,  # noqa: DTZ001 - shop time has no zone
    )


def write_chunks(
    folder: Path, chance: random.Random, schema: pa.Schema, rows: Sequence[tuple[object, ...]]
) -> Iterator[str]:
    """Rows as files of random size, some CSV, some Parquet."""
    while rows:
        size = chance.randint(1, len(rows))
        taken, rows = rows[:size], rows[size:]
        columns = [
            pa.array(values, kind.type)
            for values, kind in zip(zip(*taken, strict=True), schema, strict=True)
        ]
        file = folder / f"{len(rows)}.{chance.choice(['csv', 'parquet'])}"
        table = pa.table(columns, schema=schema)
        save = pa.csv.write_csv if file.suffix == ".csv" else pa.parquet.write_table
        save(table, str(file))
        yield str(file)


def make_sources(folder: Path, seed: int) -> dict[str, list[str]]:
    chance = random.Random(seed)
    sales = [sale(chance, number) for number in range(chance.randint(20, 400))]
    stores = [(number, f"city {number}") for number in range(1, 5)]
    for name in ("sales", "stores"):
        (folder / name).mkdir(parents=True)
    return {
        "sales": list(write_chunks(folder / "sales", chance, SALES, sales)),
        "stores": list(write_chunks(folder / "stores", chance, STORES, stores)),
        "returns": [],
    }


@pytest.mark.parametrize(("seed", "shards", "runs"), [(1, 1, 1), (2, 3, 2)])
@pytest.mark.timeout(300)
def test_every_operator_gives_the_same_rows_whatever_the_chunks_shards_and_other_runs(
    spark: Session, tmp_path: Path, seed: int, shards: int, runs: int
) -> None:
    pipeline = every_operator()
    given = {run: make_sources(tmp_path / str(run), seed + run) for run in range(runs)}
    found = execute_runs(spark, pipeline, given, str(tmp_path / "out"), shards, seed)
    for run, sources in given.items():
        wanted = reference(spark, pipeline, sources)
        assert found[run].keys() == wanted.keys()
        for sink, rows in wanted.items():
            assert_same(found[run][sink], rows)


def test_what_sold_five_times_on_each_of_two_shards_beats_what_sold_six_times_on_one(
    spark: Session, tmp_path: Path
) -> None:
    shop = tg.Pipeline("shop")
    sold = shop.source("sales", "item string, quantity bigint")
    sold.aggregate(by="item", units="sum(quantity)").top(1, by="units desc").sink("best")
    runs = {1: ["tea,5", "milk,6", "tea,5"], 2: ["rye,5", "tea,6", "rye,5"], 3: []}
    sources = {run: {"sales": files} for run, files in one_file_each(tmp_path, runs).items()}
    for seed in range(3):
        found = execute_runs(spark, shop, sources, str(tmp_path / str(seed)), shards=2, seed=seed)
        best = {run: found[run]["best"].collect() for run in runs}
        assert best == {1: [("tea", 10)], 2: [("rye", 10)], 3: []}


def one_file_each(folder: Path, runs: dict[int, list[str]]) -> dict[int, list[str]]:
    files: dict[int, list[str]] = {run: [] for run in runs}
    for run, lines in runs.items():
        for number, line in enumerate(lines):
            file = folder / f"{run}-{number}.csv"
            file.write_text(f"item,quantity\n{line}\n")
            files[run].append(str(file))
    return files


def test_a_run_without_any_chunk_gives_empty_sinks_with_their_columns(
    spark: Session, tmp_path: Path
) -> None:
    pipeline = every_operator()
    found = execute(spark, pipeline, {}, str(tmp_path), shards=2, seed=0)
    wanted = reference(spark, pipeline, {})
    for sink, rows in wanted.items():
        assert_same(found[sink], rows)
    assert found["everything"].collect() == [(0, None, None)]


def test_ties_of_a_top_are_decided_by_columns_that_are_not_read_afterwards(
    spark: Session, tmp_path: Path
) -> None:
    shop = tg.Pipeline("shop")
    rows = shop.source("rows", "first string, second string, amount bigint")
    rows.top(1, by="amount desc").select("second").sink("winner")
    file = tmp_path / "rows.csv"
    file.write_text("first,second,amount\na,z,1\nb,y,1\n")
    found = execute(spark, shop, {"rows": [str(file)]}, str(tmp_path / "out"), shards=1, seed=0)
    assert_same(found["winner"], reference(spark, shop, {"rows": [str(file)]})["winner"])
