"""The latest time of a chunk is read from its files, whatever wrote them and however."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

import tidegate as tg
from tidegate.pipeline.nodes import EventTime
from tidegate.spark import Session, ingest, latest_event, watermark

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
BEFORE_1970 = datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=UTC)
INSTANT, WALL_CLOCK, DAY = pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32()


def milliseconds(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def written(folder: Path, kind: pa.DataType, *groups: list[Any], **how: Any) -> int | None:
    """The latest time of a file with these row groups."""
    schema = pa.schema([("n", pa.int64()), ("at", kind)])
    with parquet.ParquetWriter(folder / "a.parquet", schema, **how) as writer:
        for group in groups:
            columns = {"n": range(len(group)), "at": pa.array(group, kind)}
            writer.write_table(pa.table(columns, schema))
    return latest_event(str(folder), ("a.parquet",), "at")


@pytest.mark.parametrize(
    "how",
    [{}, {"write_statistics": False}, {"use_deprecated_int96_timestamps": True}],
    ids=["statistics", "no statistics", "int96"],
)
def test_nulls_say_nothing_and_the_latest_of_all_row_groups_counts(
    tmp_path: Path, how: dict[str, Any]
) -> None:
    groups = [None, BEFORE_1970], [NOON, None, BEFORE_1970], [None, None]
    assert written(tmp_path, INSTANT, *groups, **how) == milliseconds(NOON)
    assert written(tmp_path, INSTANT, [None, None], **how) is None
    assert written(tmp_path, INSTANT, **how) is None


def test_years_beyond_the_range_of_nanoseconds_are_read(tmp_path: Path) -> None:
    """Spark has them, and they fit into the INT96 that it writes."""
    late = datetime(9000, 1, 1, tzinfo=UTC)
    assert written(tmp_path, INSTANT, [late]) == milliseconds(late)


def test_parts_of_a_millisecond_are_not_counted_as_seen(tmp_path: Path) -> None:
    assert written(tmp_path, INSTANT, [BEFORE_1970]) == -1


def test_a_time_without_a_zone_is_utc_and_a_day_is_its_midnight(tmp_path: Path) -> None:
    assert written(tmp_path, WALL_CLOCK, [NOON.replace(tzinfo=None)]) == milliseconds(NOON)
    midnight = datetime(2026, 3, 1, tzinfo=UTC)
    assert written(tmp_path, DAY, [date(2026, 3, 1), None]) == milliseconds(midnight)
    assert written(tmp_path, DAY, [date(2026, 3, 1)], write_statistics=False) == milliseconds(
        midnight
    )


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_the_unit_of_a_file_does_not_matter(tmp_path: Path, unit: str) -> None:
    assert written(tmp_path, pa.timestamp(unit, "UTC"), [NOON]) == milliseconds(NOON)


def test_all_files_of_a_chunk_are_read_and_a_chunk_without_rows_has_no_time(
    tmp_path: Path,
) -> None:
    written(tmp_path, INSTANT, [NOON])
    (tmp_path / "a.parquet").rename(tmp_path / "b.parquet")
    written(tmp_path, INSTANT, [BEFORE_1970])
    both = latest_event(str(tmp_path), ("a.parquet", "b.parquet"), "at")
    assert both == milliseconds(NOON)
    assert latest_event(str(tmp_path), (), "at") is None


def test_whatever_is_not_later_than_allowed_may_follow(tmp_path: Path) -> None:
    written(tmp_path, INSTANT, [NOON])
    files, root = ("a.parquet",), str(tmp_path)
    assert watermark(root, files, EventTime("at", 90_000)) == milliseconds(NOON) - 90_001
    assert watermark(root, files, None) is None
    written(tmp_path, INSTANT, [None])
    assert watermark(root, files, EventTime("at", 90_000)) is None


# ── as chunks are copied ──


def no_spark() -> Session:
    raise AssertionError("Spark was used although Arrow reads the file")


def copied(tmp_path: Path, kind: str, file: Path) -> int | None:
    pipeline = tg.Pipeline("shop")
    pipeline.source("sales", f"at {kind}", event_time="at").sink("all")
    batch = ingest(no_spark, pipeline, "sales", str(file), str(tmp_path), "chunks/1")
    return latest_event(str(tmp_path), batch.files, "at")


@pytest.mark.parametrize(
    ("kind", "zone"), [("timestamp", "Z"), ("timestamp", "+00:00"), ("timestamp_ntz", "")]
)
def test_the_latest_time_of_csv_is_that_of_its_copy_by_arrow(
    tmp_path: Path, kind: str, zone: str
) -> None:
    file = tmp_path / "a.csv"
    file.write_text(f"at\n2025-12-31T23:00:00{zone}\n\n2026-03-01T12:00:00{zone}\n")
    assert copied(tmp_path, kind, file) == milliseconds(NOON)


def test_the_latest_time_of_parquet_is_that_of_its_copy_by_arrow(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    times = pa.array([None, BEFORE_1970, NOON], INSTANT)
    parquet.write_table(pa.table({"at": times}), file)
    assert copied(tmp_path, "timestamp", file) == milliseconds(NOON)


@given(st.lists(st.lists(st.none() | st.datetimes(), min_size=1, max_size=4), max_size=4))
def test_the_footer_has_the_latest_time_of_the_rows(
    tmp_path_factory: pytest.TempPathFactory, groups: list[list[datetime | None]]
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    quick = written(folder, WALL_CLOCK, *groups)
    assert quick == written(folder, WALL_CLOCK, *groups, write_statistics=False)
    micros = [pa.scalar(it, WALL_CLOCK).value for group in groups for it in group if it is not None]
    assert quick == (max(micros) // 1000 if micros else None)
