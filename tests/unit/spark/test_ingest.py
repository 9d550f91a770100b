"""A chunk is checked and copied before it is taken; what is refused leaves nothing behind."""

from __future__ import annotations

import bz2
import gzip
import hashlib
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import feather, ipc, parquet

import tidegate as tg
from tidegate.dataflow import Batch
from tidegate.errors import (
    BadValue,
    MissingColumns,
    NoSpace,
    NoSuchChunk,
    RunError,
    UnknownFormat,
    UnknownSource,
    UnreadableChunk,
    WrongColumnType,
)
from tidegate.spark import Session, digest, ingest, ingest_table
from tidegate.spark.ingest.csv_reader import ArrowCsvReader
from tidegate.spark.ingest.parquet_writer import UNFINISHED

BEGINNING = "chunks/run=7/to=1/sales/3"
GOOD = b"Amount,more,ID\n1.5,x,12.0\n,,\n"


@pytest.fixture
def shop() -> tg.Pipeline:
    return selling("id bigint, amount decimal(6,2)")


def selling(schema: str) -> tg.Pipeline:
    pipeline = tg.Pipeline("shop")
    pipeline.source("sales", schema).select("id").sink("ids")
    return pipeline


def no_spark() -> Session:
    raise AssertionError("Spark was used although Arrow reads the file")


def taken(pipeline: tg.Pipeline, file: Path, root: Path) -> pa.Table:
    """What was copied, as it was stored."""
    return stored(ingest(no_spark, pipeline, "sales", str(file), str(root), BEGINNING), root)


def stored(batch: Batch, root: Path) -> pa.Table:
    (name,) = batch.files
    table = parquet.read_table(root / name, partitioning=None)
    assert name.startswith(BEGINNING)
    assert name.endswith(".parquet")
    assert (batch.rows, batch.bytes) == (table.num_rows, (root / name).stat().st_size)
    return table


def written(file: Path, content: bytes) -> Path:
    file.write_bytes(content)
    return file


def files_below(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "a.csv": bytes,
    "A.CSV": bytes,
    "a.csv.gz": gzip.compress,
    "a.csv.bz2": bz2.compress,
}


@pytest.mark.parametrize("name", PACKED)
def test_csv_becomes_typed_parquet_with_the_declared_columns_only(
    shop: tg.Pipeline, tmp_path: Path, name: str
) -> None:
    file = written(tmp_path / name, PACKED[name](GOOD))
    table = taken(shop, file, tmp_path / "root")
    assert table.schema == pa.schema({"id": pa.int64(), "amount": pa.decimal128(6, 2)})
    assert table["id"].to_pylist() == [12, None]
    assert table["amount"].to_pylist() == [Decimal("1.50"), None]
    assert files_below(tmp_path / "root") == [next((tmp_path / "root").rglob("*.parquet"))]


def test_every_declared_type_is_stored_as_spark_stores_it(tmp_path: Path) -> None:
    pipeline = selling(
        "id int, s smallint, t tinyint, d decimal(38,18), x double, f float, ok boolean,"
        " day date, at timestamp_ntz, moment timestamp, name string"
    )
    file = written(
        tmp_path / "a.csv",
        b"id,s,t,d,x,f,ok,day,at,moment,name\n"
        b"1,2,3,4.5,1e3,.5,YES,2024-02-29,2024-03-01 06:00:00.5,2024-03-01T06:00:00+01:00,tea\n",
    )
    table = taken(pipeline, file, tmp_path)
    assert table.schema.types == [
        pa.int32(), pa.int16(), pa.int8(), pa.decimal128(38, 18), pa.float64(), pa.float32(),
        pa.bool_(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.string(),
    ]  # fmt: skip
    (row,) = table.to_pylist()
    shop_time = datetime(2024, 3, 1, 6, 0, 0, 500_000)  # noqa: DTZ001 - has no zone
    moment = datetime(2024, 3, 1, 5, tzinfo=UTC)
    assert tuple(row.values()) == (
        1, 2, 3, Decimal("4.5"), 1000.0, 0.5, True, date(2024, 2, 29), shop_time, moment, "tea"
    )  # fmt: skip


def test_blocks_end_with_lines_and_ids_may_become_floats_in_any_of_them() -> None:
    ids = [f"{n}.0" if n > 50 else str(n) for n in range(100)]
    lines = "".join(f'{id},"a, ""b""",{id}\r\n' for id in ids).removesuffix("\r\n")
    content = b"\xef\xbb\xbfid,name,amount\r\n" + lines.encode()
    pieces = [content[at : at + 7] for at in range(0, len(content), 7)]
    quick = ArrowCsvReader(
        ("id", "name", "amount"), pa.schema({"amount": pa.float64(), "id": pa.int8()})
    )
    table = pa.concat_tables(quick.read(pieces))
    assert table["id"].to_pylist() == table["amount"].to_pylist() == list(range(100))


def test_no_rows_are_a_batch_without_files(shop: tg.Pipeline, tmp_path: Path) -> None:
    for content in (b"id,amount", b"id,amount\n", b"id,amount\n\n"):
        file = written(tmp_path / "a.csv", content)
        batch = ingest(no_spark, shop, "sales", str(file), str(tmp_path / "root"), BEGINNING)
        assert batch == Batch((), 0)
    assert files_below(tmp_path / "root") == []


# --- Parquet and Arrow -----------------------------------------------------------------------


def write_parquet(table: pa.Table, file: Path) -> Path:
    parquet.write_table(table, file)
    return file


def write_feather(table: pa.Table, file: Path) -> Path:
    feather.write_feather(table, file)
    return file


def write_stream(table: pa.Table, file: Path) -> Path:
    with ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    return file


TYPED: dict[str, Callable[[pa.Table, Path], Path]] = {
    "a.parquet": write_parquet,
    "a.feather": write_feather,
    "a.arrow": write_stream,
    "a.ipc": write_stream,
}


@pytest.mark.parametrize("name", TYPED)
def test_typed_files_are_fitted_where_nothing_is_lost(tmp_path: Path, name: str) -> None:
    pipeline = selling("id bigint, amount decimal(6,2), name string, at timestamp_ntz, n int")
    at = datetime(2024, 3, 1, 6)  # noqa: DTZ001 - has no zone
    table = pa.table(
        {
            "at": pa.array([at, None], pa.timestamp("ns")),
            "name": pa.array(["tea", "tea"]).dictionary_encode(),
            "ID": [12.0, None],
            "more": [[1], [2]],
            "amount": pa.array([Decimal("1.5"), None], pa.decimal128(9, 1)),
            "n": pa.nulls(2),
        }
    )
    found = taken(pipeline, TYPED[name](table, tmp_path / name), tmp_path / "root")
    assert found.schema.names == ["id", "amount", "name", "at", "n"]
    assert found.to_pylist()[0] == {
        "id": 12, "amount": Decimal("1.50"), "name": "tea", "at": at, "n": None
    }  # fmt: skip


@pytest.mark.parametrize("name", TYPED)
@pytest.mark.parametrize(
    ("values", "bad"),
    [
        (pa.array([1.0, 2.0, 12.5, 13.5]), "12.5"),
        (pa.array([1.0, float("nan")]), "nan"),
        (pa.array([2**64 - 1], pa.uint64()), str(2**64 - 1)),
    ],
)
def test_a_value_that_would_change_is_named_with_its_column(
    shop: tg.Pipeline, tmp_path: Path, name: str, values: pa.Array, bad: str
) -> None:
    table = pa.table({"id": values, "amount": pa.nulls(len(values), pa.decimal128(6, 2))})
    file = TYPED[name](table, tmp_path / name)
    with pytest.raises(BadValue) as refused:
        taken(shop, file, tmp_path / "root")
    error = refused.value
    assert (error.column, error.value, error.type, error.line) == ("id", bad, "bigint", None)
    assert files_below(tmp_path / "root") == []


def test_digits_that_do_not_fit_are_refused_and_never_wrapped_around(tmp_path: Path) -> None:
    pipeline = selling("id decimal(38,18)")
    table = pa.table({"id": pa.array([Decimal(10) ** 36], pa.decimal128(38, 0))})
    with pytest.raises(BadValue):
        ingest_table(pipeline, "sales", table, str(tmp_path), BEGINNING)


def test_a_table_in_memory_is_taken_like_a_file(shop: tg.Pipeline, tmp_path: Path) -> None:
    table = pa.table({"ID": [1.0, 2.0], "x": ["", ""], "amount": pa.nulls(2)})
    batch = ingest_table(shop, "sales", table, str(tmp_path), BEGINNING)
    assert stored(batch, tmp_path)["id"].to_pylist() == [1, 2]
    with pytest.raises(WrongColumnType):
        ingest_table(shop, "sales", table.rename_columns(["x", "ID", "amount"]), "", BEGINNING)
    with pytest.raises(MissingColumns):
        ingest_table(shop, "sales", table.drop_columns("ID"), "", BEGINNING)


def test_a_dictionary_of_string_views_is_taken_as_text(tmp_path: Path) -> None:
    """As Polars writes its categories."""
    names = pa.array(["tea", "milk"], pa.string_view())
    column = pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.uint32()), names)
    batch = pa.record_batch([pa.array([1, 2, 3], pa.int64()), column], ["id", "name"])
    with ipc.new_file(str(tmp_path / "1.arrow"), batch.schema) as file:
        file.write_batch(batch)
    table = taken(selling("id bigint, name string"), tmp_path / "1.arrow", tmp_path / "root")
    assert table.column("name").to_pylist() == ["milk", None, "tea"]


def test_arrow_of_another_type_is_refused_with_both_types(
    shop: tg.Pipeline, tmp_path: Path
) -> None:
    table = pa.table({"id": ["one"], "amount": pa.nulls(1)})
    with pytest.raises(WrongColumnType) as refused:
        taken(shop, write_stream(table, tmp_path / "a.arrow"), tmp_path / "root")
    error = refused.value
    assert (error.column, error.found, error.declared) == ("id", "string", "bigint")


def test_arrow_with_a_type_that_only_spark_knows_is_refused(tmp_path: Path) -> None:
    file = write_stream(pa.table({"id": [[1]]}), tmp_path / "a.arrow")
    with pytest.raises(UnreadableChunk, match=r"array<int> .* Parquet files only"):
        taken(selling("id array<int>"), file, tmp_path / "root")


# --- What is refused -------------------------------------------------------------------------


def table_of(rows: int) -> pa.Table:
    return pa.table({"id": range(rows), "amount": pa.nulls(rows, pa.decimal128(6, 2))})


@pytest.mark.parametrize("name", ["a.csv.gz", *TYPED])
def test_a_truncated_file_is_unreadable_and_leaves_nothing(
    shop: tg.Pipeline, tmp_path: Path, name: str
) -> None:
    file = tmp_path / name
    if name in TYPED:
        TYPED[name](table_of(10_000), file)
    else:
        file.write_bytes(gzip.compress(GOOD + b"".join(b"1,,%d\n" % n for n in range(10_000))))
    content = file.read_bytes()
    for end in (0, 7, len(content) // 2, len(content) - 9):
        file.write_bytes(content[:end])
        with pytest.raises((UnreadableChunk, MissingColumns)):
            taken(shop, file, tmp_path / "root")
    assert files_below(tmp_path / "root") == []


def test_damaged_pages_are_unreadable(shop: tg.Pipeline, tmp_path: Path) -> None:
    file = write_parquet(table_of(10_000), tmp_path / "a.parquet")
    content = file.read_bytes()
    file.write_bytes(content[:50] + b"\xff" * 200 + content[250:])
    with pytest.raises(UnreadableChunk):
        taken(shop, file, tmp_path / "root")


def refusals(folder: Path) -> dict[type[RunError], tuple[str, Path]]:
    return {
        UnknownSource: ("sails", written(folder / "a.csv", GOOD)),
        NoSuchChunk: ("sales", folder / "nowhere.csv"),
        UnknownFormat: ("sales", written(folder / "notes.txt", GOOD)),
        MissingColumns: ("sales", written(folder / "b.csv", b"id\n1\n")),
        UnreadableChunk: ("sales", written(folder / "c.csv", b"id,amount\r1,2\r")),
    }


@pytest.mark.parametrize(
    "error", [UnknownSource, NoSuchChunk, UnknownFormat, MissingColumns, UnreadableChunk]
)
def test_errors_found_without_reading_rows_are_raised_first(
    shop: tg.Pipeline, tmp_path: Path, error: type[RunError]
) -> None:
    source, file = refusals(tmp_path)[error]
    with pytest.raises(error):
        ingest(no_spark, shop, source, str(file), str(tmp_path / "root"), BEGINNING)
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_a_full_disk_can_be_tried_again(shop: tg.Pipeline, tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    write_parquet(table_of(10_000), file) if name in TYPED else written(file, GOOD)
    full = tmp_path / "root" / f"{BEGINNING}.parquet{UNFINISHED}"
    full.parent.mkdir(parents=True)
    full.symlink_to("/dev/full")
    with pytest.raises(NoSpace) as refused:
        taken(shop, file, tmp_path / "root")
    assert refused.value.retryable
    assert list(full.parent.iterdir()) == []


def test_anything_that_arrow_might_read_differently_is_left_to_spark(
    shop: tg.Pipeline, tmp_path: Path
) -> None:
    class Asked(Exception):
        pass

    def spark() -> Any:
        raise Asked

    doubtful = ["0x1F,1", "12.50,1", "1,1.234", "1,twelve", "1", "1,2,3", '1"2,1', "1,12345"]
    for line in doubtful:
        file = written(tmp_path / "a.csv", f"id,amount\n1,1\n{line}\n".encode())
        with pytest.raises(Asked):
            ingest(spark, shop, "sales", str(file), str(tmp_path / "root"), BEGINNING)
    assert files_below(tmp_path / "root") == []


def test_the_digest_is_that_of_the_bytes(tmp_path: Path) -> None:
    content = gzip.compress(GOOD)
    file = written(tmp_path / "a.csv.gz", content)
    assert digest(str(file)) == hashlib.sha256(content).hexdigest()
