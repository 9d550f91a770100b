"""What is wrong with a chunk is said when it is delivered, and nothing of it stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.integration.runtime.shop import Client, ask, files_of, shop
from tidegate.errors import (
    BadLine,
    BadValue,
    MissingColumns,
    NoSpace,
    NoSuchChunk,
    RunError,
    UnknownFormat,
    UnreadableChunk,
    WrongColumnType,
)
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.file_storage import FileStorage
from tidegate.runtime.ingestion.run_service import RunService
from tidegate.runtime.task_graph import TaskGraph
from tidegate.spark import Session
from tidegate.store import Database, Notifications

MEGABYTE = 1 << 20


def recorded(place: Deployment) -> list[tuple[object, ...]]:
    return ask(
        place.database,
        """
        SELECT source, number FROM tidegate.chunk
        UNION ALL SELECT kind, seq FROM tidegate.message
        """,
    )


def cut_off(file: Path) -> Path:
    parquet.write_table(pa.table({"item_id": [1, 2], "quantity": [3, 4]}), file)
    file.write_bytes(file.read_bytes()[:-20])
    return file


def written(file: Path, text: str) -> Path:
    file.write_text(text)
    return file


def stored_as_text(file: Path) -> Path:
    parquet.write_table(pa.table({"item_id": ["one"], "quantity": [3]}), file)
    return file


BAD: dict[type[RunError], Callable[[Path], Path]] = {
    UnreadableChunk: lambda folder: cut_off(folder / "cut.parquet"),
    MissingColumns: lambda folder: written(folder / "wrong.csv", "item,quantity\n1,2\n"),
    WrongColumnType: lambda folder: stored_as_text(folder / "text.parquet"),
    BadValue: lambda folder: written(folder / "bad.csv", "item_id,quantity\n1,2\n2,two\n"),
    BadLine: lambda folder: written(folder / "line.csv", "item_id,quantity\n1,2,3\n"),
    NoSuchChunk: lambda folder: folder / "nowhere.csv",
    UnknownFormat: lambda folder: written(folder / "sales.xlsx", "not a table"),
}


@pytest.mark.parametrize("kind", BAD, ids=lambda kind: kind.__name__)
def test_a_bad_chunk_is_refused_by_its_kind_and_leaves_neither_row_nor_file(
    kind: type[RunError], counter: RunService, place: Deployment, tmp_path: Path
) -> None:
    client = Client(counter, "march", tmp_path)
    with pytest.raises(kind) as refused:
        client.deliver("sales", 1, BAD[kind](tmp_path))
    assert not refused.value.retryable
    assert recorded(place) == []
    assert files_of(place, client.id) == []


def test_a_value_is_refused_with_its_line_and_column_and_may_be_corrected(
    counter: RunService, place: Deployment, tmp_path: Path
) -> None:
    client = Client(counter, "march", tmp_path)
    with pytest.raises(BadValue) as refused:
        client.deliver("sales", 1, BAD[BadValue](tmp_path))
    bad = refused.value
    assert (bad.source, bad.column, bad.value, bad.type, bad.line) == (
        "sales", "quantity", "two", "int", 3,
    )  # fmt: skip
    assert client.sales(1, (2, 2))
    assert ask(place.database, "SELECT number, rows FROM tidegate.chunk") == [(1, 1)]
    assert len(files_of(place, client.id)) == 1


# --- a full disk -----------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["without Spark", "by Spark"])
def test_a_chunk_that_does_not_fit_on_the_disk_is_refused_and_fits_when_there_is_space(
    way: str,
    small_disk: Path,
    database: Database,
    task_graph: TaskGraph,
    spark: Session,
    tmp_path: Path,
) -> None:
    place = Deployment(database, str(small_disk))
    filler = small_disk / "filler"
    filler.write_bytes(bytes(4 * MEGABYTE - 100_000))
    with Notifications(database) as notifications:
        counter = RunService(place, shop(), task_graph, lambda: spark, notifications)
        client = Client(counter, "march", tmp_path)
        # What a quote within a field means is for Spark to say.
        last = '1,10,so "called"' if way == "by Spark" else "1,10,so called"
        lines = [f"{n * 7919 * 7919 * 7919},{n}," for n in range(60_000)]
        file = client.file("sales", 1, "item_id,quantity,note", [*lines, last])
        with pytest.raises(NoSpace) as refused:
            client.deliver("sales", 1, file)
        assert refused.value.retryable
        assert recorded(place) == []
        assert [it.path for it in FileStorage(place.root).files("chunks")] == []
        filler.unlink()
        assert client.deliver("sales", 1, file)
    assert ask(database, "SELECT rows FROM tidegate.chunk") == [(60_001,)]
