"""Peer of the pipeline benchmark: the four questions by Structured Streaming.

Four streaming queries over the file source, ten files per trigger, started together, each with a
checkpoint, until everything that is there has been read (`availableNow`). Like Tidegate, it goes
on after a crash where it was; unlike Tidegate, each query ends by itself, and nothing publishes
the results together.

A streaming query cannot rank what it aggregates. So the aggregation of Q2, Q3 and Q4 streams in
complete mode, and each trigger's `foreachBatch` replaces a small table: the sums of Q2 and Q3, and
for Q4 only the three best customers of each store, which are exact because the complete state is
ranked. That spares it to write and read again a million counts. When the streams are through, a
batch ranks and joins these small tables. Q1 streams straight into its result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench import _coffee as coffee
from bench._coffee import Format

FILES_PER_TRIGGER = 10


@dataclass(frozen=True, slots=True)
class Places:
    """Where a run reads and writes."""

    session: SparkSession
    folder: Path
    out: Path
    checkpoints: Path
    kind: Format

    def stream(self, source: str) -> DataFrame:
        """The rows of two years of a source, as they arrive."""
        session, folder = self.session, self.folder
        return coffee.in_2024_or_2025(
            coffee.stream(session, folder, source, self.kind, FILES_PER_TRIGGER)
        )

    def table(self, source: str) -> DataFrame:
        """A small source, which is complete from the start."""
        return coffee.read(self.session, self.folder, source, self.kind)

    def state(self, name: str) -> str:
        """The table that a streaming query replaces at each trigger."""
        return str(self.checkpoints / "tables" / name)

    def seen(self, name: str) -> DataFrame:
        """What the streaming query has put there last."""
        return self.session.read.parquet(self.state(name))


def structured_streaming(
    session: SparkSession,
    folder: Path,
    out: Path,
    checkpoints: Path,
    format: Format = "csv",  # noqa: A002
) -> None:
    """Answer the four questions over `folder`, as `out/<sink>/part-*`.

    `out` and `checkpoints` must be fresh: with those of an earlier run there is nothing to do.
    """
    places = Places(session, folder, out, checkpoints, format)
    for query in _start(places):
        query.awaitTermination()
    _finish(places)


def _start(places: Places) -> list[StreamingQuery]:
    payments = places.stream("transactions")
    items = places.stream("transaction_items")
    return [
        _append(places, "q1", coffee.large(payments)),
        _keep(places, "q2", coffee.monthly(items), lambda sold: sold),
        _keep(places, "q3", coffee.half_yearly(payments), lambda paid: paid),
        _keep(places, "q4", coffee.visits(payments), coffee.most_frequent),
    ]


def _append(places: Places, name: str, rows: DataFrame) -> StreamingQuery:
    writer = rows.writeStream.format(places.kind).outputMode("append").trigger(availableNow=True)
    writer = writer.options(header=True, escape='"')
    writer = writer.option("checkpointLocation", str(places.checkpoints / name))
    return writer.start(str(places.out / name))


def _keep(
    places: Places, name: str, rows: DataFrame, needed: Callable[[DataFrame], DataFrame]
) -> StreamingQuery:
    def replace(state: DataFrame, _: int) -> None:
        needed(state).write.mode("overwrite").parquet(places.state(name))

    writer = rows.writeStream.foreachBatch(replace).outputMode("complete")
    writer = writer.option("checkpointLocation", str(places.checkpoints / name))
    return writer.trigger(availableNow=True).start()


def _finish(places: Places) -> None:
    """Rank and join what the streams have left; small, and all in batch."""
    stores = places.table("stores")
    for sink, by in (("q2_best_selling", "sellings_qty"), ("q2_most_profit", "profit_sum")):
        best = coffee.best_of_month(places.seen("q2"), places.table("menu_items"), by)
        coffee.write(best, places.out / sink, places.kind)
    coffee.write(coffee.with_store(places.seen("q3"), stores), places.out / "q3", places.kind)
    born = coffee.birthdays(places.seen("q4"), stores, places.table("users"))
    coffee.write(born, places.out / "q4", places.kind)
