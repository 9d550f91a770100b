"""Spark jobs that fail: tried again while there is hope, and otherwise only their own run fails."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest
from pyarrow import parquet

import tidegate as tg
from tests.integration.runtime.jobs import Jobs
from tests.integration.runtime.shop import Client, files_of, rows, shop
from tests.waiting import wait_until
from tidegate.errors import RunFailed
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.file_storage import FileStorage
from tidegate.runtime.jobs import job_batcher as batchers
from tidegate.runtime.monitor.sweeper import sweep
from tidegate.runtime.service import serve
from tidegate.settings import Settings
from tidegate.spark import Session
from tidegate.store import Database


def test_a_job_that_fails_twice_is_tried_a_third_time_and_the_run_is_complete(
    jobs: Jobs, place: Deployment, spark: Session, tmp_path: Path
) -> None:
    jobs.failures = 2
    with serve(place, shop(), spark) as service:
        client = Client(service.server, "march", tmp_path)
        client.sell()
        assert rows(spark, place, client.wait()["best"]) == [("tea", 7000)]
    assert jobs.tried > 3


def test_a_job_that_always_fails_fails_its_run_with_sparks_cause_and_the_others_are_complete(
    place: Deployment, spark: Session, tmp_path: Path
) -> None:
    with serve(place, strict(), spark) as service:
        clients = {name: Client(service.server, name, tmp_path) for name in ("a", "bad", "c")}
        for name, client in clients.items():
            client.sales(1, (1, -5 if name == "bad" else 5))
            client.end()
        with pytest.raises(RunFailed) as failed:
            clients["bad"].wait()
        assert "a quantity below zero" in failed.value.cause
        assert "USER_RAISED_EXCEPTION" in failed.value.cause
        for name in ("a", "c"):
            assert rows(spark, place, clients[name].wait()["total"]) == [(1, 5)]
        after = Client(service.server, "after", tmp_path)
        after.sales(1, (1, 9))
        after.end()
        assert rows(spark, place, after.wait()["total"]) == [(1, 9)]
        wait_until(lambda: _swept(place, clients["bad"].id))


def test_a_run_whose_error_quotes_a_nul_character_fails_alone_also_after_a_restart(
    place: Deployment, spark: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = replace(place, settings=Settings(task_restart_seconds=0.001))
    file = tmp_path / "nul.parquet"
    parquet.write_table(pa.table({"code": ["a\0b"]}), file)
    with serve(place, casting(), spark) as service:
        client = Client(service.server, "bad", tmp_path)
        client.deliver("codes", 1, file)
        client.end()
        with pytest.raises(RunFailed) as failed:
            client.wait()
        assert r"a\0b" in failed.value.cause
        assert "CAST_INVALID_INPUT" in failed.value.cause
        service.check()
    with serve(place, casting(), spark) as service:
        after = Client(service.server, "after", tmp_path)
        after.deliver("codes", 1, after.file("codes", 1, "code", ["7"]))
        after.end()
        assert rows(spark, place, after.wait()["numbers"]) == [(7,)]
        service.check()


def casting() -> tg.Pipeline:
    """Reads texts as numbers, which Spark refuses with an error that quotes the text."""
    pipeline = tg.Pipeline("casting", shards=1)
    codes = pipeline.source("codes", "code string")
    codes.select(number="cast(code as int)").sink("numbers")
    return pipeline


def test_a_file_that_was_lost_under_a_run_fails_it_and_is_named(
    jobs: Jobs, place: Deployment, spark: Session, tmp_path: Path
) -> None:
    jobs.goes_on.clear()
    with serve(place, shop(), spark) as service:
        client, other = (Client(service.server, name, tmp_path) for name in ("march", "april"))
        client.sell()
        other.sell("milk")
        (lost,) = [file for file in files_of(place, client.id) if "/sales/" in file]
        Path(place.root, lost).unlink()
        jobs.goes_on.set()
        with pytest.raises(RunFailed) as failed:
            client.wait()
        assert Path(lost).name in failed.value.cause
        assert rows(spark, place, other.wait()["best"]) == [("milk", 7000)]


def strict() -> tg.Pipeline:
    """Adds up, and complains of a quantity below zero, which Spark hears of only in the job."""
    pipeline = tg.Pipeline("strict", shards=2)
    sales = pipeline.source("sales", "item_id bigint, quantity int")
    checked = "if(quantity < 0, raise_error('a quantity below zero'), quantity)"
    sales.select("item_id", quantity=checked).aggregate(by="item_id", total="sum(quantity)").sink(
        "total"
    )
    return pipeline


def _swept(place: Deployment, run: int) -> bool:
    sweep(place.database, FileStorage(place.root))
    return files_of(place, run) == []


# --- a full disk -----------------------------------------------------------------------------


def fill(filler: Path) -> None:
    """Take all the space that there is."""
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass


@pytest.mark.parametrize("is_freed", [True, False])
def test_a_stage_that_finds_the_disk_full_tries_again_and_goes_on_if_there_is_space(
    is_freed: bool,
    jobs: Jobs,
    small_disk: Path,
    database: Database,
    spark: Session,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place, filler = Deployment(database, str(small_disk)), small_disk / "filler"
    jobs.goes_on.clear()
    pauses: list[float] = []

    def paused(seconds: float, closed: Event) -> bool:
        pauses.append(seconds)
        if is_freed:
            filler.unlink(missing_ok=True)
        return closed.is_set()

    monkeypatch.setattr(batchers, "paused", paused)
    with serve(place, shop(), spark) as service:
        client = Client(service.server, "march", tmp_path)
        client.items(1, (1, "tea"))
        client.sales(1, *((n * 7919, 200) for n in range(40_000)), (1, 2_000))
        client.end()
        fill(filler)
        jobs.goes_on.set()
        if is_freed:
            assert rows(spark, place, client.wait()["best"]) == [("tea", 2_000_000)]
            assert pauses
            return
        with pytest.raises(RunFailed) as failed:
            client.wait()
        assert "space" in failed.value.cause
        filler.unlink()
        after = Client(service.server, "after", tmp_path)
        after.sell()
        assert rows(spark, place, after.wait()["best"]) == [("tea", 7000)]
