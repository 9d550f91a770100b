"""Spark streams as sources: batches become chunks once, whatever Spark remembers of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.run.shop import BOUND, Client, rows
from tests.waiting import wait_until
from tidegate.errors import ChunkConflict, MissingColumns, NotAStream, StreamFailed, WrongColumnType
from tidegate.run.deployment import Deployment
from tidegate.run.service import Service
from tidegate.spark import Rows, Session

SCHEMA = "item_id bigint, quantity int"


class Till:
    """A folder to which sales are written, and the stream of what is in it."""

    def __init__(self, folder: Path, spark: Session) -> None:
        self._spark = spark
        self.sales = folder / "sales"
        self.sales.mkdir(parents=True)
        self.checkpoint = folder / "stream"

    def sell(self, number: int, *sold: tuple[int, int]) -> None:
        lines = [f"{item},{quantity}" for item, quantity in sold]
        (self.sales / f"{number}.csv").write_text("\n".join([*lines, ""]))

    def stream(self, schema: str = SCHEMA) -> Rows:
        reader = self._spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.csv(str(self.sales))


def followed(service: Service, client: Client, till: Till) -> None:
    """Take all that there is."""
    stream = till.stream()
    checkpoint = str(till.checkpoint)
    following = service.server.follow(client.run, "sales", stream, checkpoint=checkpoint)
    assert following.wait(BOUND)


def test_a_batch_that_spark_gives_again_is_counted_once(
    common: Service, common_place: Deployment, spark: Session, tmp_path: Path
) -> None:
    client, till = Client(common.server, "streamed", tmp_path), Till(tmp_path / "till", spark)
    client.items(1, (1, "tea"))
    till.sell(1, (1, 7))
    till.sell(2, (1, 200))
    followed(common, client, till)
    (till.checkpoint / "commits" / "1").unlink()
    for leftover in (till.checkpoint / "commits").glob(".1.crc"):
        leftover.unlink()
    till.sell(3, (1, 1))
    followed(common, client, till)
    number = common.server.cuts.begin(client.run)
    cut = common.server.cuts.wait(client.run, number, BOUND)

    assert cut.manifest["sources"]["sales"] == {"chunks": 3, "ended": False}
    assert rows(spark, common_place, cut.results["best"]) == [("tea", 208_000)]
    client.end()
    assert rows(spark, common_place, client.wait()["best"]) == [("tea", 208_000)]


def test_another_stream_is_not_taken_for_the_first(
    common: Service, spark: Session, tmp_path: Path
) -> None:
    client = Client(common.server, "two streams", tmp_path)
    first, second = Till(tmp_path / "first", spark), Till(tmp_path / "second", spark)
    for till in (first, second):
        till.sell(1, (1, 7))
    followed(common, client, first)

    with pytest.raises(StreamFailed) as told:
        followed(common, client, second)
    assert isinstance(told.value.__cause__, ChunkConflict)
    common.server.cancel(client.run)


def test_what_cannot_be_followed_is_refused_before_it_begins(
    common: Service, spark: Session, tmp_path: Path
) -> None:
    client, till = Client(common.server, "refused", tmp_path), Till(tmp_path / "till", spark)

    def follow(stream: Rows) -> None:
        common.server.follow(client.run, "sales", stream, checkpoint=str(till.checkpoint))

    with pytest.raises(NotAStream):
        follow(spark.range(1))
    with pytest.raises(MissingColumns):
        follow(till.stream("item_id bigint"))
    with pytest.raises(WrongColumnType):
        follow(till.stream("item_id bigint, quantity string"))
    assert not till.checkpoint.exists()
    common.server.cancel(client.run)


def test_a_stream_of_another_kind_is_taken_like_one_of_files(
    common: Service, common_place: Deployment, spark: Session, tmp_path: Path
) -> None:
    """Rows of Spark's own clock, cut while they come."""
    client = Client(common.server, "by the clock", tmp_path)
    client.items(1, (1, "tea"))
    ticking = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
    ones = ticking.selectExpr("cast(1 as bigint) as item_id", "cast(1 as int) as quantity")
    checkpoint = str(tmp_path / "clock")
    following = common.server.follow(client.run, "sales", ones, checkpoint=checkpoint, every=0.5)

    def sold() -> int:
        following.check()
        return common.server.rows_in(client.run).get("sales", 0)

    wait_until(lambda: sold() >= 20, BOUND)
    number = common.server.cuts.begin(client.run)
    cut = common.server.cuts.wait(client.run, number, BOUND)
    ((_, some),) = rows(spark, common_place, cut.results["best"])
    following.stop()
    client.end()
    ((_, all_of_them),) = rows(spark, common_place, client.wait()["best"])
    assert 20_000 <= int(str(some)) <= int(str(all_of_them)) == 1000 * sold_in_all(common, client)


def sold_in_all(service: Service, client: Client) -> int:
    return service.server.rows_in(client.run)["sales"]
