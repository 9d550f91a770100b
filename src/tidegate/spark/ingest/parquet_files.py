"""Reads facts about files without Spark: file system, columns, rows, checksum.

Paths are local, or URIs of a file system that both Spark and pyarrow can access.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import fs as arrow_fs
from pyarrow import parquet

from tidegate.spark.ingest.quoted_breaks import end_of_long_records
from tidegate.spark.ingest.row_group_size import GroupRows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PARQUET = ".parquet"
_FEW_FILES, _READERS = 8, 8
"""The most footers to read one after the other; more are read by so many threads."""
_BUFFER_BYTES = 1 << 20
_HEADER_BYTES = 1 << 20
"""More bytes than any header line has."""
_SEARCHED_LINES, _SEARCHED_SECONDS = 1_000_000, 5.0
"""Limits of a search: lines, which Python reads in about two seconds, and seconds."""
_PATTERN = re.compile(r"[\\*?\[\]{}]")


@dataclass(frozen=True, slots=True)
class ParquetFileInfo:
    """A Parquet file below a root folder: its path from there, its rows and its bytes."""

    path: str
    rows: int
    bytes: int


def literal(path: str) -> str:
    """A path with characters escaped that Spark would read as a pattern.

    >>> print(literal("sales [1]/*.csv"))
    sales \\[1\\]/\\*.csv
    """
    return _PATTERN.sub(r"\\\g<0>", path)


def stored_parquet(root: str, folder: str) -> list[ParquetFileInfo]:
    """All Parquet files below `folder` of `root`, in a stable order; one listing, then footers."""
    system, base = locate(root.rstrip("/"))
    selector = arrow_fs.FileSelector(f"{base}/{folder}", recursive=True, allow_not_found=True)
    infos = system.get_file_info(selector)
    found = sorted((it.path, it.size) for it in infos if it.is_file and it.path.endswith(PARQUET))

    def stored(file: tuple[str, int]) -> ParquetFileInfo:
        path, size = file
        rows = parquet.read_metadata(path, filesystem=system).num_rows
        return ParquetFileInfo(path[len(base) :].lstrip("/"), rows, size)

    if len(found) <= _FEW_FILES:
        return [stored(file) for file in found]
    with ThreadPoolExecutor(_READERS) as readers:
        return list(readers.map(stored, found))


def parquet_batches(path: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a Parquet file in batches: the larger its values, the fewer rows per batch."""
    system, inside = locate(path)
    # With read-ahead, Arrow would have about the whole file in memory.
    how = {"filesystem": system, "buffer_size": _BUFFER_BYTES, "pre_buffer": False}
    with parquet.ParquetFile(inside, **how) as file:
        types = {name: file.schema_arrow.field(name).type for name in columns}
        flat = [name for name in columns if not pa.types.is_nested(types[name])]
        with parquet.ParquetFile(
            inside, read_dictionary=flat, metadata=file.metadata, **how
        ) as encoded:
            rows = GroupRows(file, encoded)
            for group in range(file.num_row_groups):
                most = rows.at(group, columns)
                yield from file.iter_batches(most, [group], columns=[*columns], use_threads=False)


def parquet_schema(path: str) -> pa.Schema:
    """The columns of a Parquet file, from its footer."""
    system, inside = locate(path)
    return parquet.read_schema(inside, filesystem=system)


def csv_header(path: str) -> tuple[str, ...]:
    """The names in the first line of a CSV file, which may be compressed."""
    system, inside = locate(path)
    with system.open_input_stream(inside, compression="detect") as stream:
        text = bytes(stream.read(_HEADER_BYTES)).decode("utf-8-sig", errors="replace")
    return tuple(name.strip() for name in next(csv.reader(io.StringIO(text)), []))


def csv_line(path: str, place: int, value: str, *, is_long: bool = False) -> int | None:
    """The number of the first line whose column `place` is `value`; None beyond the limits."""
    for number, fields in csv_records(path, is_long=is_long):
        if number > 1 and fields[place : place + 1] == [value]:
            return number
    return None


def csv_records(path: str, *, is_long: bool = False) -> Iterator[tuple[int, list[str]]]:
    """The records of a CSV file with the numbers of their first lines, the header first.

    Up to a million, or as many as are read in five seconds. A line is a record, as in Spark, unless
    records are long: then quoted fields may continue in the next line.
    """
    until = monotonic() + _SEARCHED_SECONDS
    for record in _all_records(path, is_long=is_long):
        yield record
        if monotonic() > until:
            return


def _all_records(path: str, *, is_long: bool) -> Iterator[tuple[int, list[str]]]:
    system, inside = locate(path)
    with system.open_input_stream(inside, compression="detect") as stream:
        ends = "" if is_long else None
        lines = io.TextIOWrapper(stream, "utf-8-sig", errors="replace", newline=ends)
        if is_long:
            yield from _long_records(lines)
            return
        for number, line in enumerate(islice(lines, _SEARCHED_LINES), 1):
            yield number, _fields(line)


def _long_records(lines: io.TextIOWrapper) -> Iterator[tuple[int, list[str]]]:
    """Records up to the first field that Python cannot parse."""
    reader, first = csv.reader(lines), 1
    with suppress(csv.Error):
        for fields in islice(reader, _SEARCHED_LINES):
            yield first, fields
            first = reader.line_num + 1


def csv_long_end(path: str) -> str:
    """The line end of a CSV file if quoted fields continue in the next line, else empty."""
    system, inside = locate(path)
    with system.open_input_stream(inside, compression="detect") as stream:
        return end_of_long_records(iter(lambda: bytes(stream.read(_HEADER_BYTES)), b""))


def _fields(line: str) -> list[str]:
    """Empty where Python cannot parse what Spark can: a field of more than 128 KiB."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def digest(path: str) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    return size_and_digest(path)[1]


def size_and_digest(path: str) -> tuple[int, str]:
    """The number of a file's bytes and their SHA-256, in hexadecimal, from one reading."""
    system, inside = locate(path)
    sha256, size = hashlib.sha256(), 0
    with system.open_input_stream(inside, compression=None) as stream:
        while block := stream.read(_BUFFER_BYTES):
            sha256.update(block)
            size += len(block)
    return size, sha256.hexdigest()


def size(path: str) -> int:
    """The number of bytes of a file."""
    system, inside = locate(path)
    return int(system.get_file_info(inside).size or 0)


def locate(path: str) -> tuple[arrow_fs.FileSystem, str]:
    """The file system of a path or URI, and the path in it."""
    if "://" in path or path.startswith("file:"):
        system, inside = arrow_fs.FileSystem.from_uri(path)
        return system, inside
    return arrow_fs.LocalFileSystem(), str(Path(path).absolute())
