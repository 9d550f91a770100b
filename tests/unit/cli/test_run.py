"""`tidegate run` refuses what it cannot do before Spark starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import tidegate as tg
from tidegate.cli import app
from tidegate.errors import NoSourceFolder, UnexpectedFiles
from tidegate.runtime.ingestion.folder_run import chunks_in

runner = CliRunner()


def shop() -> tg.Pipeline:
    pipeline = tg.Pipeline("shop")
    pipeline.source("sales", "id bigint").sink("all")
    return pipeline


def test_a_data_folder_without_a_folder_for_each_source_is_a_usage_error(tmp_path: Path) -> None:
    said = runner.invoke(app, ["run", "coffee", "--data", str(tmp_path), "--out", str(tmp_path)])
    assert said.exit_code == 2
    assert "transactions" in said.output


def test_every_csv_and_parquet_file_of_a_source_is_a_chunk_in_the_order_of_names(
    tmp_path: Path,
) -> None:
    fill(tmp_path / "sales", "2.csv", "1.parquet", "3.csv.gz", "4.CSV", "5.Arrow", "6.CSV.bz2")
    assert named(chunks_in(tmp_path, shop())["sales"]) == [
        "1.parquet", "2.csv", "3.csv.gz", "4.CSV", "5.Arrow", "6.CSV.bz2",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["0.txt", "0", "0.csv.zip", "0.xlsx", "0.csv.bak", "0.csv.GZ"])
def test_a_file_that_is_no_chunk_by_its_name_is_refused_with_its_source_and_the_endings(
    name: str, tmp_path: Path
) -> None:
    fill(tmp_path / "sales", "1.csv", name)
    with pytest.raises(UnexpectedFiles) as refused:
        chunks_in(tmp_path, shop())
    assert refused.value.source == "sales"
    assert refused.value.files == str(tmp_path / "sales" / name)
    assert ".csv.gz" in refused.value.endings


@pytest.mark.parametrize("name", ["2024", "part.parquet"])
def test_a_folder_in_the_folder_of_a_source_is_refused_for_its_files_would_be_missed(
    name: str, tmp_path: Path
) -> None:
    fill(tmp_path / "sales" / name, "1.parquet")
    with pytest.raises(UnexpectedFiles):
        chunks_in(tmp_path, shop())


def test_what_spark_editors_and_systems_leave_behind_is_passed_over(tmp_path: Path) -> None:
    fill(
        tmp_path / "sales", ".DS_Store", "_SUCCESS", ".1.csv.crc", "1.csv.crc", "1.csv~", "#1.csv#"
    )
    fill(tmp_path / "sales", "._1.csv", "~$1.csv", ".~lock.1.csv#", "_metadata", "1.csv", "_2.csv")
    assert named(chunks_in(tmp_path, shop())["sales"]) == ["1.csv", "_2.csv"]


def fill(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()


def named(files: list[Path]) -> list[str]:
    return [file.name for file in files]


def test_an_empty_folder_is_a_source_without_rows_and_a_missing_one_a_mistake(
    tmp_path: Path,
) -> None:
    with pytest.raises(NoSourceFolder) as refused:
        chunks_in(tmp_path, shop())
    assert refused.value.sources == "sales"
    (tmp_path / "sales").mkdir()
    assert chunks_in(tmp_path, shop()) == {"sales": []}
