"""Event time of chunks as clients deliver them: learned from whatever they are, shown to people."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

import tidegate as tg
from tests.integration.runtime.shop import BOUND, rows
from tidegate.cli import app
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.service import PipelineService, serve
from tidegate.spark import Session

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR, DELAY = timedelta(hours=1), timedelta(minutes=10)
EPOCH, MOMENT = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)
"""The watermark is before all that may follow."""
INSTANT = pa.timestamp("us", "UTC")


def milliseconds(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def timed() -> tg.Pipeline:
    """Sales may come ten minutes late; days have no delay, and notes no time."""
    pipeline = tg.Pipeline("timed", shards=2)
    sales = pipeline.source("sales", "n bigint, at timestamp", event_time="at", delay="10 minutes")
    days = pipeline.source("days", "n bigint, day date", event_time="day")
    notes = pipeline.source("notes", "n bigint, at timestamp")
    sales.aggregate(sold="count(*)").sink("sold")
    days.union(notes.select("n", day="cast(at as date)")).sink("others")
    return pipeline


@pytest.fixture(scope="module")
def service(common_place: Deployment, spark: Session) -> Iterator[PipelineService]:
    with serve(common_place, timed(), spark) as service:
        yield service


class Seller:
    """Writes chunks and delivers them to a run."""

    def __init__(self, service: PipelineService, run: str, folder: Path) -> None:
        self.server = service.server
        self.run = run
        self._folder = folder
        self.server.begin(run)

    def csv(self, source: str, number: int, header: str, *lines: str) -> None:
        file = self._folder / f"{source}-{number}.csv"
        file.write_text("\n".join([header, *lines, ""]))
        self.server.deliver(self.run, source, number, str(file))

    def parquet(self, number: int, *times: datetime | None, **how: Any) -> None:
        file = self._folder / f"sales-{number}.parquet"
        columns = {"n": range(len(times)), "at": pa.array(times, INSTANT)}
        parquet.write_table(pa.table(columns), file, **how)
        self.server.deliver(self.run, "sales", number, str(file))

    def times(self) -> dict[str, int | None]:
        return {it.name: it.watermark for it in self.server.facts(self.run).sources}

    @property
    def time(self) -> datetime | None:
        """The watermark of the sales, and the delay that was taken off."""
        found = self.times()["sales"]
        return None if found is None else EPOCH + found * MOMENT + DELAY + MOMENT


@pytest.fixture
def seller(service: PipelineService, tmp_path: Path, request: pytest.FixtureRequest) -> Seller:
    return Seller(service, request.node.name.replace("[", "-").replace("]", ""), tmp_path)


def test_csv_and_parquet_say_when_their_rows_happened(seller: Seller) -> None:
    seller.csv("sales", 1, "n,at", "1,", "2,", "")
    assert seller.time is None
    seller.csv("sales", 2, "n,at", "1,2026-03-01T11:00:00Z", "2,", "3,2026-03-01T12:00:00Z")
    assert seller.time == NOON
    seller.parquet(3, None, NOON - HOUR)
    assert seller.time == NOON
    seller.parquet(4, NOON + HOUR, None)
    assert seller.time == NOON + HOUR


def test_chunks_that_only_spark_can_read_say_it_too(seller: Seller) -> None:
    seller.csv("sales", 1, "n,at", "1,2026-03-01 12:00:00", "2,2026-03-01T14:30:00+02:00", "3,")
    assert seller.time == NOON + HOUR / 2
    seller.parquet(2, None, NOON + HOUR, use_deprecated_int96_timestamps=True)
    assert seller.time == NOON + HOUR
    late = datetime(3000, 1, 1, tzinfo=UTC)
    seller.csv("sales", 3, "n,at", "1,3000-01-01 00:00:00", "2,2026-03-01T14:30:00+02:00")
    assert seller.time == late


def test_the_batches_of_a_stream_say_it_too(seller: Seller, spark: Session, tmp_path: Path) -> None:
    till = tmp_path / "till"
    till.mkdir()
    (till / "1.csv").write_text("1,2026-03-01T12:00:00Z\n2,\n")
    stream = spark.readStream.schema("n bigint, at timestamp").csv(str(till))
    checkpoint = str(tmp_path / "stream")
    following = seller.server.follow(seller.run, "sales", stream, checkpoint=checkpoint)
    assert following.wait(BOUND)
    assert seller.time == NOON


def test_only_sources_with_event_time_have_a_watermark_and_a_day_begins_at_midnight(
    seller: Seller,
) -> None:
    seller.csv("days", 1, "n,day", "1,2026-02-28", "2,2026-03-01", "3,")
    seller.csv("notes", 1, "n,at", "1,2026-03-01T12:00:00Z")
    midnight = milliseconds(NOON.replace(hour=0))
    assert seller.times() == {"days": midnight - 1, "notes": None, "sales": None}


def test_late_rows_count_and_cuts_tell_their_time(
    seller: Seller, service: PipelineService, common_place: Deployment, spark: Session
) -> None:
    seller.parquet(1, NOON)
    seller.parquet(2, NOON - 10 * HOUR)
    number = service.server.checkpoints.begin(seller.run)
    checkpoint = service.server.checkpoints.wait(seller.run, number, BOUND)
    assert rows(spark, common_place, checkpoint.results["sold"]) == [(2,)]
    assert checkpoint.manifest["sources"] == {
        "sales": {"chunks": 2, "ended": False, "watermark": milliseconds(NOON - DELAY - MOMENT)},
        "days": {"chunks": 0, "ended": False},
        "notes": {"chunks": 0, "ended": False},
    }


def test_status_and_checkpoints_tell_up_to_when(
    seller: Seller, service: PipelineService, common_place: Deployment
) -> None:
    where = ["--deployment", common_place.root, "--database", common_place.database.url]

    def told(*arguments: str) -> str:
        answer = CliRunner().invoke(app, [*arguments, *where])
        assert answer.exit_code == 0, answer.output
        return answer.stdout

    assert "up to" not in told("status", seller.run)
    seller.parquet(1, NOON)
    number = service.server.checkpoints.begin(seller.run)
    service.server.checkpoints.wait(seller.run, number, BOUND)
    _, header, *lines = told("status", seller.run).splitlines()
    assert header.endswith("up to")
    shown = [line for line in lines if line.endswith("2026-03-01 11:49:59")]
    assert [line.split()[:2] for line in shown] == [["source", "sales"]]
    header, line = told("checkpoints", seller.run).splitlines()
    assert re.search(r"triggered +up to$", header)
    assert line.endswith("2026-03-01 11:49:59")
    (listed,) = json.loads(told("checkpoints", seller.run, "--json"))
    assert listed["up_to"] == milliseconds(NOON - DELAY - MOMENT)
    sources = json.loads(told("status", seller.run, "--json"))["sources"]
    assert {it["name"]: it["watermark"] for it in sources} == seller.times()
