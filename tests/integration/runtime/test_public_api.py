"""The public face: frames in and out, handles of runs, in this process and over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

import tidegate as tg
from tidegate.errors import (
    ChunkConflict,
    FilesOnServer,
    MissingColumns,
    NoMatchingFile,
    OneFileExpected,
    SourceNotGiven,
    UnknownRun,
    UnknownSink,
    UnknownSource,
    UnsupportedData,
    WrongColumnType,
)
from tidegate.http import serve_http
from tidegate.spark import Session

ROWS = {"store_id": [1, 2, 1], "amount": [10, 20, 5]}
TOTALS = [(1, 15), (2, 20)]


def shop(name: str = "shop") -> tg.Pipeline:
    pipeline = tg.Pipeline(name)
    sales = pipeline.source("sales", "store_id bigint, amount int")
    sales.aggregate(by="store_id", total="sum(amount)").sink("totals")
    sales.filter("amount > 1000").sink("large")
    return pipeline


@pytest.fixture(scope="module")
def service(common_place: tg.Deployment, spark: Session) -> Iterator[tg.PipelineFrontend]:
    with common_place.serve(shop(), spark) as service:
        yield service


@pytest.fixture(scope="module")
def remote(service: tg.PipelineFrontend, common_place: tg.Deployment) -> Iterator[str]:
    with serve_http(service, common_place, "127.0.0.1:0") as listening:
        yield listening.url


def totals(results: tg.Results) -> list[tuple[int, int]]:
    table = results["totals"].to_arrow()
    return sorted(zip(*(table.column(it).to_pylist() for it in ("store_id", "total")), strict=True))


def frames(spark: Session) -> dict[str, object]:
    table = pa.table(ROWS)
    return {
        "spark": spark.createDataFrame(
            [*zip(*ROWS.values(), strict=True)], "store_id long, amount int"
        ),
        "arrow": table,
        "reader": pa.RecordBatchReader.from_batches(table.schema, table.to_batches()),
        "pandas": pd.DataFrame(ROWS),
    }


@pytest.mark.parametrize("kind", ["spark", "arrow", "reader", "pandas"])
def test_every_kind_of_frame_is_a_chunk(
    service: tg.PipelineFrontend, spark: Session, kind: str
) -> None:
    run = service.start(kind)
    assert run.put("sales", frames(spark)[kind]) == [1]
    run.end("sales")
    results = run.result(timeout=60)
    assert totals(results) == TOTALS
    assert sorted(map(tuple, results["totals"].to_df().collect())) == TOTALS
    assert results["totals"].to_pandas()["total"].sum() == 35
    assert (results["totals"].rows, results["totals"].schema.names) == (2, ["store_id", "total"])
    assert all(Path(file).is_absolute() for file in results["totals"].files)


def test_an_empty_result_has_its_columns(service: tg.PipelineFrontend) -> None:
    run = service.start("empty")
    run.end()
    large = run.result(timeout=60)["large"]
    assert (large.rows, large.files) == (0, ())
    assert large.to_arrow().schema.names == ["store_id", "amount"]
    assert large.to_df().columns == ["store_id", "amount"]
    assert [*large.to_pandas().columns] == ["store_id", "amount"]


def test_a_chunk_without_a_number_gets_the_next_one_also_with_equal_content(
    service: tg.PipelineFrontend, tmp_path: Path
) -> None:
    run = service.start("numbers")
    one, two = pa.table(ROWS), pa.table({"store_id": [3], "amount": [1]})
    assert [run.put("sales", it) for it in (one, two, two)] == [[1], [2], [3]]
    for number in (7, 8):
        file = tmp_path / f"{number}.csv"
        file.write_text(f"store_id,amount\n{number},1\n")
    assert run.put("sales", str(tmp_path / "*.csv")) == [4, 5]
    assert run.put("sales", tmp_path) == [6, 7]
    with pytest.raises(OneFileExpected):
        run.put("sales", tmp_path, chunk=8)
    assert run.put("sales", two, chunk=2) == [2]
    with pytest.raises(ChunkConflict):
        run.put("sales", two, chunk=1)
    run.end("sales")
    assert totals(run.result(timeout=60)) == [*TOTALS, (3, 2), (7, 2), (8, 2)]


def test_frames_that_do_not_fit_the_source_are_refused(
    service: tg.PipelineFrontend, spark: Session
) -> None:
    run = service.start("misfits")
    with pytest.raises(WrongColumnType) as wrong:
        run.put("sales", spark.sql("SELECT 1L AS store_id, 2L AS amount"))
    assert (wrong.value.column, wrong.value.found) == ("amount", "bigint")
    with pytest.raises(MissingColumns):
        run.put("sales", spark.sql("SELECT 1L AS store_id"))
    with pytest.raises(UnsupportedData):
        run.put("sales", {"store_id": [1]})
    with pytest.raises(NoMatchingFile):
        run.put("sales", "/nowhere/*.csv")
    with pytest.raises(UnknownSource):
        run.put("sails", pa.table(ROWS))
    assert run.put(
        "sales", spark.sql("SELECT cast(1 AS int) AS store_id, cast(2 AS tinyint) AS amount")
    )
    assert run.cancel()
    assert not run.cancel()


def test_a_handle_shows_status_and_what_is_waited_for(service: tg.PipelineFrontend) -> None:
    run = service.start("waiting")
    assert "sales" in run.why()
    assert service.run("waiting").status().run.name == "waiting"
    with pytest.raises(UnknownRun):
        service.run("nothing")
    run.cancel()


def test_results_at_a_checkpoint_are_read_by_its_number(service: tg.PipelineFrontend) -> None:
    run = service.start("points")
    run.put("sales", pa.table(ROWS))
    taken = run.checkpoint(timeout=60)
    run.put("sales", pa.table({"store_id": [3], "amount": [1]}))
    run.end("sales")
    assert totals(run.result(timeout=60)) == [*TOTALS, (3, 1)]
    assert totals(run.result(checkpoint=taken)) == TOTALS
    assert totals(run.result(checkpoint="latest")) == TOTALS
    assert [it.number for it in run.checkpoints()] == [taken.number]


def test_the_same_handle_works_over_http(remote: str, spark: Session, tmp_path: Path) -> None:
    with tg.connect(remote) as there:
        run = there.start("elsewhere")
        assert run.put("sales", frames(spark)["spark"]) == [1]
        assert run.put("sales", pd.DataFrame({"store_id": [3], "amount": [1]})) == [2]
        parquet.write_table(pa.table({"store_id": [4], "amount": [1]}), tmp_path / "4.parquet")
        assert run.put("sales", tmp_path / "4.parquet") == [3]
        assert run.put("sales", tmp_path / "4.parquet", chunk=3) == [3]
        taken = run.checkpoint(timeout=60)
        run.end()
        results = run.result(timeout=60)
        assert totals(results) == [*TOTALS, (3, 1), (4, 1)]
        assert results["totals"].to_df(spark).count() == 4
        assert results["large"].to_arrow().schema.names == ["store_id", "amount"]
        assert totals(run.result(checkpoint=taken.number)) == totals(results)
        assert "ended" in there.run("elsewhere").why()
        with pytest.raises(FilesOnServer):
            results["totals"].files  # noqa: B018
        with pytest.raises(UnknownSink):
            results["total"]
        with pytest.raises(UnknownRun):
            there.run("nothing")
        assert not run.cancel()


def test_a_pipeline_runs_in_one_line(spark: Session, tmp_path: Path) -> None:
    (tmp_path / "more.csv").write_text("store_id,amount\n3,1\n")
    results = shop("one_line").run(sales=[frames(spark)["spark"], tmp_path / "more.csv"])
    assert totals(results) == [*TOTALS, (3, 1)]
    assert results["totals"].to_df().count() == 3
    with pytest.raises(SourceNotGiven):
        shop("none").run()
    with pytest.raises(UnknownSource):
        shop("other").run(sails="x.csv")


def test_the_settings_of_the_users_session_stay_as_they_are(spark: Session) -> None:
    theirs = spark.newSession()
    theirs.conf.set("spark.sql.session.timeZone", "America/New_York")
    theirs.conf.set("spark.sql.ansi.enabled", "false")
    pipeline = tg.Pipeline("zones")
    pipeline.source("sales", "sold_at timestamp").select(hour="hour(sold_at)").sink("hours")
    sales = theirs.sql("SELECT timestamp'2025-01-01 01:00:00' AS sold_at")
    assert pipeline.run(sales=[sales, sales])["hours"].to_pandas()["hour"].tolist() == [6, 6]
    assert theirs.conf.get("spark.sql.session.timeZone") == "America/New_York"
    assert theirs.conf.get("spark.sql.ansi.enabled") == "false"
