"""A whole run from a folder of files to a folder of results."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidegate as tg
from tidegate.errors import BadValue, BarrierTimeout, ProcessorFailed
from tidegate.run.folders import RunOptions, RunReport, chunks_in, run_folder
from tidegate.spark import Session

SALES = "item_id,quantity\n1,2\n2,3\n1.0,2\n3,\n"
MORE_SALES = "item_id,quantity\n2,4\n"
ITEMS = 'item_id,item_name\n1,"a ""quoted"", name"\n2,tea\n'


def shop() -> tg.Pipeline:
    pipeline = tg.Pipeline("shop", shards=2)
    sales = pipeline.source("sales", "item_id bigint, quantity int")
    items = pipeline.source("items", "item_id bigint, item_name string")
    sold = sales.aggregate(by="item_id", sold="sum(quantity)")
    sold.join(items, on="item_id", how="left").select("item_name", "sold").sink("sold")
    sales.filter("quantity > 100").sink("bulk")
    return pipeline


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name, text in {
        "sales/1.csv": SALES,
        "sales/2.csv": MORE_SALES,
        "items/1.csv": ITEMS,
    }.items():
        file = tmp_path / "data" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "data"


def run(data: Path, out: Path, spark: Session, wanted: RunOptions) -> RunReport:
    return run_folder(shop(), chunks_in(data, shop()), out, spark, wanted)


def test_results_are_ordered_csv_with_a_header_and_an_empty_one_is_written_too(
    data: Path, tmp_path: Path, spark: Session
) -> None:
    told: list[str] = []
    chunks = chunks_in(data, shop())
    report = run_folder(shop(), chunks, tmp_path / "out", spark, RunOptions("march"), told.append)
    assert (tmp_path / "out" / "sold.csv").read_text().splitlines() == [
        "item_name,sold",
        ",",
        '"a ""quoted"", name",4',
        "tea,7",
    ]
    assert (tmp_path / "out" / "bulk.csv").read_text() == "item_id,quantity\n"
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["bulk.csv", "sold.csv"]
    assert (report.chunks, report.rows_in) == (
        {"sales": 2, "items": 1},
        {"sales": 5, "items": 2},
    )
    assert report.rows_out == {"sold": 3, "bulk": 0}
    assert sum(stage.jobs for stage in report.stages) > 0
    assert told[-1].startswith("complete")


def test_a_run_that_exceeds_its_deadline_names_who_holds_it_up_and_writes_nothing(
    data: Path, tmp_path: Path, spark: Session
) -> None:
    with pytest.raises(BarrierTimeout) as late:
        run(data, tmp_path / "out", spark, RunOptions(deadline=0.01))
    assert late.value.held_by
    assert not (tmp_path / "out").exists()


def test_a_value_that_cannot_be_read_fails_the_run_and_is_named(
    data: Path, tmp_path: Path, spark: Session
) -> None:
    (data / "sales" / "3.csv").write_text("item_id,quantity\n1,many\n")
    with pytest.raises(ProcessorFailed) as failed:
        run(data, tmp_path / "out", spark, RunOptions())
    assert isinstance(failed.value.__cause__, BadValue)
    assert "many" in str(failed.value)
    assert not (tmp_path / "out").exists()
