"""The coffee questions in plain PySpark: what both peers of the pipeline benchmark are made of.

Schemas, reading, one function per part of a question, writing. Nothing of Tidegate is in here,
and nothing of it is needed: this is what one would write by hand, DataFrame in, DataFrame out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.window import Window

Format: TypeAlias = Literal["csv", "parquet"]

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # 200, the default, is for clusters: on two cores it only costs.
    "spark.sql.shuffle.partitions": "8",
}
"""What the peers expect of their session."""

# Exporters write ids next to empty fields as floats, so these are read as such.
SOURCES = {
    "transactions": """
        transaction_id string, store_id bigint, payment_method_id bigint, voucher_id double,
        user_id double, original_amount decimal(12,2), discount_applied decimal(12,2),
        final_amount decimal(12,2), created_at timestamp_ntz
        """,
    "transaction_items": """
        transaction_id string, item_id bigint, quantity bigint, unit_price decimal(12,2),
        subtotal decimal(12,2), created_at timestamp_ntz
        """,
    "menu_items": """
        item_id bigint, item_name string, category string, price decimal(12,2),
        is_seasonal boolean, available_from date, available_to date
        """,
    "stores": """
        store_id bigint, store_name string, street string, postal_code string, city string,
        state string, latitude double, longitude double
        """,
    "users": "user_id bigint, gender string, birthdate date, registered_at timestamp_ntz",
}

SINKS = {
    "q1": "transaction_id string, final_amount decimal(12,2)",
    "q2_best_selling": "year_month_created_at string, item_name string, sellings_qty bigint",
    "q2_most_profit": "year_month_created_at string, item_name string, profit_sum decimal(22,2)",
    "q3": "year_half_created_at string, store_name string, tpv decimal(22,2)",
    "q4": "store_name string, birthdate date",
}


# --- Reading and writing ---------------------------------------------------------------------


def read(session: SparkSession, folder: Path, source: str, kind: Format) -> DataFrame:
    """All rows of a source."""
    reader = session.read.schema(SOURCES[source])
    if kind == "parquet":
        return reader.parquet(str(folder / source))
    return reader.csv(str(folder / source), header=True, escape='"', mode="FAILFAST")


def stream(session: SparkSession, folder: Path, source: str, kind: Format, files: int) -> DataFrame:
    """The rows of a source as they arrive, so many files at a time."""
    reader: DataStreamReader = session.readStream.schema(SOURCES[source])
    reader = reader.option("maxFilesPerTrigger", files)
    if kind == "parquet":
        return reader.parquet(str(folder / source))
    return reader.csv(str(folder / source), header=True, escape='"', mode="FAILFAST")


def write(rows: DataFrame, path: Path, kind: Format) -> None:
    """Write rows as a folder of files, in place of what was there."""
    writer = rows.write.mode("overwrite").format(kind)
    writer.options(header=True, escape='"').save(str(path))


def results(session: SparkSession, out: Path, kind: Format) -> dict[str, list[tuple[object, ...]]]:
    """What has been written, by sink, in no particular order; for checking."""
    found = {}
    for sink, schema in SINKS.items():
        reader = session.read.format(kind).options(header=True, escape='"')
        reader = reader.schema(schema) if kind == "csv" else reader
        found[sink] = [tuple(row) for row in reader.load(str(out / sink)).collect()]
    return found


# --- The questions ---------------------------------------------------------------------------


def in_2024_or_2025(rows: DataFrame) -> DataFrame:
    """What all questions are about."""
    return rows.where(fn.year("created_at").between(2024, 2025))


def in_daytime(rows: DataFrame) -> DataFrame:
    """From 6 to 23 o'clock, both to the second."""
    at = fn.col("created_at")
    second = fn.hour(at) * 3600 + fn.minute(at) * 60 + fn.second(at)
    return rows.where(second.between(6 * 3600, 23 * 3600))


def large(payments: DataFrame) -> DataFrame:
    """Q1."""
    found = in_daytime(payments).where(fn.col("final_amount") >= 75)  # noqa: PLR2004
    return found.select("transaction_id", "final_amount")


def monthly(items: DataFrame) -> DataFrame:
    """Q2 before ranking: what each item sold and earned in each month."""
    month = fn.trunc("created_at", "month").alias("month")
    known = items.where(fn.col("item_id").isNotNull())
    return known.groupBy(month, "item_id").agg(
        fn.sum("quantity").alias("sellings_qty"), fn.sum("subtotal").alias("profit_sum")
    )


def best_of_month(sold: DataFrame, menu_items: DataFrame, by: str) -> DataFrame:
    """Q2: the item of each month that has most of `by`."""
    best = _first(1, sold, "month", [fn.col(by).desc(), fn.col("item_id").asc()])
    month = fn.date_format("month", "yyyy-MM").alias("year_month_created_at")
    return best.join(fn.broadcast(menu_items), "item_id").select(month, "item_name", by)


def half_yearly(payments: DataFrame) -> DataFrame:
    """Q3 before joining: what was paid in each half-year and store."""
    half = fn.when(fn.month("created_at") <= 6, "-H1").otherwise("-H2")  # noqa: PLR2004
    year_half = fn.concat(fn.year("created_at"), half).alias("year_half_created_at")
    return (
        in_daytime(payments).groupBy(year_half, "store_id").agg(fn.sum("final_amount").alias("tpv"))
    )


def with_store(paid: DataFrame, stores: DataFrame) -> DataFrame:
    """Q3."""
    named = paid.join(fn.broadcast(stores), "store_id")
    return named.select("year_half_created_at", "store_name", "tpv")


def visits(payments: DataFrame) -> DataFrame:
    """Q4 before ranking: how often each customer was in each store."""
    known = payments.where(fn.col("user_id").isNotNull())
    user = fn.col("user_id").cast("bigint").alias("user_id")
    return known.groupBy("store_id", user).agg(fn.count("*").alias("visits"))


def most_frequent(visited: DataFrame) -> DataFrame:
    """Q4 before joining: each store's three most frequent customers."""
    return _first(3, visited, "store_id", [fn.col("visits").desc(), fn.col("user_id").desc()])


def birthdays(frequent: DataFrame, stores: DataFrame, users: DataFrame) -> DataFrame:
    """Q4. There are few customers left, so it is them who are broadcast, not all users."""
    named = frequent.join(fn.broadcast(stores), "store_id")
    return users.join(fn.broadcast(named), "user_id").select("store_name", "birthdate")


def _first(n: int, rows: DataFrame, per: str, order: list[Column]) -> DataFrame:
    place = fn.row_number().over(Window.partitionBy(per).orderBy(*order))
    return rows.withColumn("place", place).where(fn.col("place") <= n).drop("place")
