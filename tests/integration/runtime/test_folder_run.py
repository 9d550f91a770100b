"""A whole run from a folder of files to a folder of results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import tidegate as tg
from tests.integration.runtime.shop import ask
from tidegate.errors import BadValue, RunFailed
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.ingestion import folder_run
from tidegate.runtime.ingestion.folder_run import (
    ProgressListener,
    RunOptions,
    RunReport,
    chunks_in,
    run_folder,
)
from tidegate.spark import Session
from tidegate.store import RunInfo, RunState, find_run

SALES = "item_id,quantity\n1,2\n2,3\n1.0,2\n3,\n"
MORE_SALES = "item_id,quantity\n2,4\n"
ITEMS = 'item_id,item_name\n1,"a ""quoted"", name"\n2,tea\n'


class Recorder(ProgressListener):
    """Records what is reported."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def report(self, what: str) -> None:
        self.lines.append(what)


def stock() -> tg.Pipeline:
    pipeline = tg.Pipeline("stock", shards=2)
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
        file = tmp_path / "files" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "files"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def run(
    data: Path, out: Path, spark: Session, place: Deployment, wanted: RunOptions
) -> tuple[RunReport, list[str]]:
    recorder = Recorder()
    chunks = chunks_in(data, stock())
    return run_folder(stock(), chunks, out, spark, place, wanted, recorder), recorder.lines


def march(place: Deployment) -> RunInfo:
    found = place.database.transact(lambda c: find_run(c, "stock", "march"))
    assert found is not None
    return found


def test_results_are_ordered_csv_with_a_header_and_an_empty_one_is_written_too(
    data: Path, out: Path, spark: Session, place: Deployment
) -> None:
    report, lines = run(data, out, spark, place, RunOptions("march"))
    assert (out / "sold.csv").read_text().splitlines() == [
        "item_name,sold",
        ",",
        '"a ""quoted"", name",4',
        "tea,7",
    ]
    assert (out / "bulk.csv").read_text() == "item_id,quantity\n"
    assert sorted(file.name for file in out.iterdir()) == ["bulk.csv", "sold.csv"]
    assert (report.chunks, report.rows_in) == (
        {"sales": 2, "items": 1},
        {"sales": 5, "items": 2},
    )
    assert report.rows_out == {"sold": 3, "bulk": 0}
    assert sum(stage.jobs for stage in report.stages) > 0
    complete, *written = lines[-3:]
    assert complete.startswith("complete")
    assert sorted(written) == ["bulk: 0 rows written", "sold: 3 rows written"]


def test_a_run_that_exceeds_its_deadline_says_what_is_missing_and_writes_nothing(
    data: Path, out: Path, spark: Session, place: Deployment
) -> None:
    with pytest.raises(RunFailed) as late:
        run(data, out, spark, place, RunOptions(deadline=0.01))
    assert "deadline" in late.value.cause
    assert "waiting: " in late.value.cause
    assert not out.exists()


def test_a_value_that_cannot_be_read_is_refused_with_its_line_and_column(
    data: Path, out: Path, spark: Session, place: Deployment
) -> None:
    (data / "sales" / "3.csv").write_text("item_id,quantity\n1,1\n1,many\n")
    with pytest.raises(BadValue) as refused:
        run(data, out, spark, place, RunOptions())
    bad = refused.value
    assert (bad.column, bad.value, bad.line) == ("quantity", "many", 3)
    assert not out.exists()
    chunks = ask(place.database, "SELECT number FROM tidegate.chunk WHERE source = 'sales'")
    assert (3,) not in chunks


def test_after_the_value_is_corrected_the_same_run_goes_on_where_it_was(
    data: Path, out: Path, spark: Session, place: Deployment
) -> None:
    wrong = data / "sales" / "3.csv"
    wrong.write_text("item_id,quantity\n1,many\n")
    with pytest.raises(BadValue):
        run(data, out, spark, place, RunOptions("march"))
    first = march(place)
    assert first.state is RunState.OPEN
    wrong.write_text("item_id,quantity\n2,300\n")
    report, _ = run(data, out, spark, place, RunOptions("march"))
    assert report.rows_in == {"sales": 6, "items": 2}
    assert (out / "bulk.csv").read_text() == "item_id,quantity\n2,300\n"
    now = march(place)
    assert (now.id, now.state) == (first.id, RunState.ENDED)


# --- the same command again, after the run was complete --------------------------------------


class Died(Exception):
    """Stands for the end of the process."""


def die_writing(*_: object) -> None:
    raise Died


def test_results_that_were_published_and_not_written_are_written_and_not_computed_again(
    data: Path, out: Path, spark: Session, place: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_run, "write_csv", die_writing)
    with pytest.raises(Died):
        run(data, out, spark, place, RunOptions("march"))
    monkeypatch.undo()
    first = march(place)
    assert first.state is RunState.ENDED
    report, _ = run(data, out, spark, place, RunOptions("march"))
    assert (out / "sold.csv").read_text().endswith("tea,7\n")
    assert (out / "bulk.csv").read_text() == "item_id,quantity\n"
    assert (report.stages, report.rows_in) == ((), {"sales": 5, "items": 2})
    assert march(place) == first


def one_byte_else(data: Path) -> RunOptions:
    (data / "sales" / "2.csv").write_text(MORE_SALES.replace("4", "5"))
    return RunOptions("march")


def one_chunk_less(data: Path) -> RunOptions:
    (data / "sales" / "2.csv").unlink()
    return RunOptions("march")


def other_shards(_: Path) -> RunOptions:
    return RunOptions("march", shards=3)


@pytest.mark.parametrize(
    ("change", "sold"),
    [(one_byte_else, "8"), (one_chunk_less, "3"), (other_shards, "7")],
)
def test_other_chunks_or_another_plan_under_the_name_of_a_complete_run_are_computed(
    change: Callable[[Path], RunOptions],
    sold: str,
    data: Path,
    out: Path,
    spark: Session,
    place: Deployment,
) -> None:
    run(data, out, spark, place, RunOptions("march"))
    first = march(place)
    report, _ = run(data, out, spark, place, change(data))
    assert (out / "sold.csv").read_text().endswith(f"tea,{sold}\n")
    assert sum(stage.jobs for stage in report.stages) > 0
    assert march(place).incarnation == first.incarnation + 1
