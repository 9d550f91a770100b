"""Spark streams as sources: batches become chunks once, whatever Spark remembers of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from threading import Event as Flag

import pytest

from tests.integration.runtime.shop import BOUND, Client, rows, shop
from tests.waiting import wait_until
from tidegate.dataflow import Batch
from tidegate.errors import (
    BatchAborted,
    BatchNotDelivered,
    ChunkConflict,
    MissingColumns,
    NotAStream,
    StreamFailed,
    StreamUnfinished,
    WrongColumnType,
)
from tidegate.plan import physical_plan
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.ingestion import stream_ingestion
from tidegate.runtime.ingestion.run_service import RunService
from tidegate.runtime.service import PipelineService
from tidegate.runtime.task_graph import build_task_graph
from tidegate.settings import Settings
from tidegate.spark import Rows, Session, copy_rows
from tidegate.store import Notifications

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


def followed(service: PipelineService, client: Client, till: Till) -> None:
    """Take all that there is."""
    stream = till.stream()
    checkpoint = str(till.checkpoint)
    following = service.server.follow(client.run, "sales", stream, checkpoint=checkpoint)
    assert following.wait(BOUND)


def test_a_batch_that_spark_gives_again_is_counted_once(
    common: PipelineService, common_place: Deployment, spark: Session, tmp_path: Path
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
    number = common.server.checkpoints.begin(client.run)
    checkpoint = common.server.checkpoints.wait(client.run, number, BOUND)

    assert checkpoint.manifest["sources"]["sales"] == {"chunks": 3, "ended": False}
    assert rows(spark, common_place, checkpoint.results["best"]) == [("tea", 208_000)]
    client.end()
    assert rows(spark, common_place, client.wait()["best"]) == [("tea", 208_000)]


def test_another_stream_is_not_taken_for_the_first(
    common: PipelineService, spark: Session, tmp_path: Path
) -> None:
    client = Client(common.server, "two streams", tmp_path)
    first, second = Till(tmp_path / "first", spark), Till(tmp_path / "second", spark)
    for till in (first, second):
        till.sell(1, (1, 7))
    followed(common, client, first)

    with pytest.raises(StreamFailed) as raised:
        followed(common, client, second)
    assert isinstance(raised.value.__cause__, ChunkConflict)
    common.server.cancel(client.run)


def test_what_cannot_be_followed_is_refused_before_it_begins(
    common: PipelineService, spark: Session, tmp_path: Path
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
    common: PipelineService, common_place: Deployment, spark: Session, tmp_path: Path
) -> None:
    """Rows of Spark's own clock, with checkpoints while they arrive."""
    client = Client(common.server, "by the clock", tmp_path)
    client.items(1, (1, "tea"))
    ticking = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
    ones = ticking.selectExpr("cast(1 as bigint) as item_id", "cast(1 as int) as quantity")
    folder = str(tmp_path / "clock")
    following = common.server.follow(client.run, "sales", ones, checkpoint=folder, every=0.5)

    def sold() -> int:
        following.check()
        return common.server.rows_in(client.run).get("sales", 0)

    wait_until(lambda: sold() >= 20, BOUND)
    number = common.server.checkpoints.begin(client.run)
    checkpoint = common.server.checkpoints.wait(client.run, number, BOUND)
    ((_, some),) = rows(spark, common_place, checkpoint.results["best"])
    following.finish(BOUND)
    client.end()
    ((_, all_of_them),) = rows(spark, common_place, client.wait()["best"])
    assert 20_000 <= int(str(some)) <= int(str(all_of_them)) == 1000 * sold_in_all(common, client)


def sold_in_all(service: PipelineService, client: Client) -> int:
    return service.server.rows_in(client.run)["sales"]


# --- Ending a source that is followed --------------------------------------------------------


class Copying:
    """Copies batches as usual, each once it may."""

    def __init__(self) -> None:
        self.begun, self.may_go_on = Flag(), Flag()

    def __call__(self, fields: object, batch: Rows, root: str, name: str) -> Batch:
        self.begun.set()
        assert self.may_go_on.wait(BOUND)
        return copy_rows(fields, batch, root, name)  # type: ignore[arg-type]


@pytest.fixture
def copying(monkeypatch: pytest.MonkeyPatch) -> Copying:
    copying = Copying()
    monkeypatch.setattr(stream_ingestion, "copy_rows", copying)
    return copying


def asleep(stream: Rows) -> Rows:
    """Rows of which each takes a while."""
    sleep = "java_method('java.lang.Thread', 'sleep', 100L)"
    return stream.selectExpr("item_id", f"coalesce(cast({sleep} as int), quantity) quantity")


def test_a_source_does_not_end_without_the_batch_that_a_stop_has_given_up(
    common: PipelineService, common_place: Deployment, spark: Session, tmp_path: Path
) -> None:
    client, till = Client(common.server, "given up", tmp_path), Till(tmp_path / "till", spark)
    client.items(1, (1, "tea"))
    till.sell(1, *[(1, 7)] * 1000)
    stream, checkpoint = asleep(till.stream()), str(till.checkpoint)
    stopped = common.server.follow(client.run, "sales", stream, checkpoint=checkpoint, every=0.1)
    wait_until(lambda: bool(spark.sparkContext.statusTracker().getActiveStageIds()), BOUND)
    stopped.stop()

    with pytest.raises(BatchAborted) as raised:
        client.end()
    assert (raised.value.source, raised.value.batch, raised.value.chunk) == ("sales", 0, 1)
    with pytest.raises(BatchNotDelivered):
        ended_elsewhere(common_place, client.run)
    again = common.server.follow(client.run, "sales", till.stream(), checkpoint=checkpoint, every=9)
    again.finish(BOUND)
    client.end()
    assert rows(spark, common_place, client.wait()["best"]) == [("tea", 7_000_000)]


def ended_elsewhere(place: Deployment, run: str) -> None:
    """As by a process that follows nothing, and does not wait."""

    def no_session() -> Session:
        raise AssertionError("nothing needs Spark here")

    here = replace(place, settings=Settings(stream_end_seconds=0.0))
    with Notifications(place.database) as notifications:
        server = RunService(
            here, shop(), build_task_graph(physical_plan(shop())), no_session, notifications
        )
        server.end(run, "sales")


def test_a_batch_that_spark_has_planned_and_not_handed_over_is_not_left_out_either(
    common: PipelineService, spark: Session, tmp_path: Path
) -> None:
    client, till = Client(common.server, "planned", tmp_path), Till(tmp_path / "till", spark)
    till.sell(1, (1, 7))
    followed(common, client, till)
    checkpoint = str(till.checkpoint)
    again = common.server.follow(client.run, "sales", till.stream(), checkpoint=checkpoint)
    assert again.wait(BOUND)
    offsets = till.checkpoint / "offsets"
    (offsets / "1").write_bytes((offsets / "0").read_bytes())
    again.stop()
    with pytest.raises(BatchAborted) as raised:
        common.server.end(client.run, "sales")
    assert raised.value.batch == 1
    common.server.end(client.run, "sales", chunks=1)
    common.server.cancel(client.run)


def test_an_end_waits_for_the_batch_at_work(
    common: PipelineService,
    common_place: Deployment,
    spark: Session,
    tmp_path: Path,
    copying: Copying,
) -> None:
    client, till = Client(common.server, "at work", tmp_path), Till(tmp_path / "till", spark)
    client.items(1, (1, "tea"))
    till.sell(1, (1, 7))
    stream, checkpoint = till.stream(), str(till.checkpoint)
    following = common.server.follow(client.run, "sales", stream, checkpoint=checkpoint)
    assert copying.begun.wait(BOUND)
    with pytest.raises(StreamUnfinished):
        following.finish(0.1)
    with ThreadPoolExecutor(1) as thread:
        ending = thread.submit(client.end)
        assert not wait([ending], timeout=0.5).done, "while the batch is at work"
        copying.may_go_on.set()
        ending.result(BOUND)
    assert rows(spark, common_place, client.wait()["best"]) == [("tea", 7_000)]


def test_a_stream_is_finished_with_all_that_it_has(
    common: PipelineService, common_place: Deployment, spark: Session, tmp_path: Path
) -> None:
    client, till = Client(common.server, "finished", tmp_path), Till(tmp_path / "till", spark)
    client.items(1, (1, "tea"))
    for number in (1, 2, 3):
        till.sell(number, (1, 10**number))
    stream, checkpoint = till.stream(), str(till.checkpoint)
    following = common.server.follow(client.run, "sales", stream, checkpoint=checkpoint, every=600)
    following.finish(BOUND)
    following.finish(BOUND)
    common.server.end(client.run, "items")
    assert rows(spark, common_place, client.wait()["best"]) == [("tea", 1_110_000)]
