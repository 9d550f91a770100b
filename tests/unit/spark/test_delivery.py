"""A chunk is looked at before it is taken, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidegate as tg
from tidegate.errors import MissingColumns, NoSuchChunk, UnknownFormat, UnknownSource
from tidegate.spark import Batch, check_chunk


@pytest.fixture
def shop() -> tg.Pipeline:
    pipeline = tg.Pipeline("shop")
    pipeline.source("sales", "id bigint, amount int").select("id").sink("ids")
    return pipeline


def test_a_chunk_with_all_declared_columns_becomes_a_batch_with_its_rows(
    shop: tg.Pipeline, tmp_path: Path
) -> None:
    file = tmp_path / "1.csv"
    file.write_text("Amount,more,id\n1,x,2\n3,y,4")
    assert check_chunk(shop, "sales", str(file)) == Batch((str(file),), rows=2)


def test_a_column_that_nobody_reads_has_to_be_there_all_the_same(
    shop: tg.Pipeline, tmp_path: Path
) -> None:
    file = tmp_path / "1.csv"
    file.write_text("id\n1\n")
    with pytest.raises(MissingColumns) as refused:
        check_chunk(shop, "sales", str(file))
    assert (refused.value.missing, refused.value.found) == (("amount",), ("id",))


def test_a_file_that_is_not_there_is_refused_by_its_whole_path(
    shop: tg.Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NoSuchChunk) as refused:
        check_chunk(shop, "sales", "nowhere.csv")
    assert refused.value.file == str(tmp_path / "nowhere.csv")


def test_an_unknown_source_and_an_unknown_format_are_refused(
    shop: tg.Pipeline, tmp_path: Path
) -> None:
    notes = tmp_path / "notes.txt"
    notes.touch()
    with pytest.raises(UnknownSource):
        check_chunk(shop, "sails", str(notes))
    with pytest.raises(UnknownFormat):
        check_chunk(shop, "sales", str(notes))
