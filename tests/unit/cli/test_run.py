"""`tidegate run` refuses what it cannot do before Spark starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import tidegate as tg
from tidegate.cli import app
from tidegate.errors import NoSourceFolder
from tidegate.run.folders import chunks_in

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
    (tmp_path / "sales").mkdir()
    for name in ("2.csv", "1.parquet", "notes.txt", "3.csv.gz"):
        (tmp_path / "sales" / name).touch()
    found = chunks_in(tmp_path, shop())
    assert [file.name for file in found["sales"]] == ["1.parquet", "2.csv", "3.csv.gz"]


def test_an_empty_folder_is_a_source_without_rows_and_a_missing_one_a_mistake(
    tmp_path: Path,
) -> None:
    with pytest.raises(NoSourceFolder) as refused:
        chunks_in(tmp_path, shop())
    assert refused.value.sources == "sales"
    (tmp_path / "sales").mkdir()
    assert chunks_in(tmp_path, shop()) == {"sales": []}
