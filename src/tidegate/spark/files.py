"""Looking at files without Spark: where they are, what columns they have, how many rows.

Paths are local, or URIs of a file system that Spark and pyarrow both reach.
"""

from __future__ import annotations

import csv
import io
from itertools import islice
from pathlib import Path

import pyarrow as pa
from pyarrow import fs as arrow_fs
from pyarrow import parquet

PARQUET = ".parquet"
_HEADER_BYTES = 1 << 20
"""More than any header line has."""
_COUNTED_BYTES = 1 << 22
_SEARCHED_LINES = 1_000_000
"""What Python looks through in about two seconds."""


def parquet_files(folder: str) -> list[str]:
    """All Parquet files below `folder`, in a stable order; none when there is no folder."""
    system, root = _locate(folder)
    selector = arrow_fs.FileSelector(root, recursive=True, allow_not_found=True)
    found = (info.path for info in system.get_file_info(selector) if info.is_file)
    inside = (path[len(root) :] for path in found if path.endswith(PARQUET))
    return sorted(folder.rstrip("/") + "/" + path.lstrip("/") for path in inside)


def parquet_rows(path: str) -> int:
    """How many rows a Parquet file has, from its footer."""
    system, inside = _locate(path)
    return int(parquet.read_metadata(inside, filesystem=system).num_rows)


def parquet_schema(path: str) -> pa.Schema:
    """The columns of a Parquet file, from its footer."""
    system, inside = _locate(path)
    return parquet.read_schema(inside, filesystem=system)


def csv_header(path: str) -> tuple[str, ...]:
    """The names in the first line of a CSV file, which may be compressed."""
    system, inside = _locate(path)
    with system.open_input_stream(inside, compression="detect") as stream:
        text = bytes(stream.read(_HEADER_BYTES)).decode("utf-8-sig", errors="replace")
    return tuple(name.strip() for name in next(csv.reader(io.StringIO(text)), []))


def csv_line(path: str, place: int, value: str) -> int | None:
    """The number of the first line whose column `place` is `value`; None beyond a million.

    A line is a record, as it is for Spark: a quoted field does not go on in the next one.
    """
    system, inside = _locate(path)
    with system.open_input_stream(inside, compression="detect") as stream:
        lines = io.TextIOWrapper(stream, "utf-8-sig", errors="replace")
        for number, line in enumerate(islice(lines, _SEARCHED_LINES), 1):
            if number > 1 and _fields(line)[place : place + 1] == [value]:
                return number
    return None


def _fields(line: str) -> list[str]:
    """None where Python refuses to split what Spark does split: a field of more than 128 KiB."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def chunk_rows(path: str) -> int:
    """How many rows a client's file has: by the footer of Parquet, by the lines of CSV."""
    if path.lower().endswith(PARQUET):
        return parquet_rows(path)
    system, inside = _locate(path)
    lines, last = 0, b"\n"
    with system.open_input_stream(inside, compression="detect") as stream:
        while block := bytes(stream.read(_COUNTED_BYTES)):
            lines, last = lines + block.count(b"\n"), block[-1:]
    return max(0, lines + (last != b"\n") - 1)


def size(path: str) -> int:
    """How many bytes a file has."""
    system, inside = _locate(path)
    return int(system.get_file_info(inside).size or 0)


def _locate(path: str) -> tuple[arrow_fs.FileSystem, str]:
    if "://" in path or path.startswith("file:"):
        system, inside = arrow_fs.FileSystem.from_uri(path)
        return system, inside
    return arrow_fs.LocalFileSystem(), str(Path(path).absolute())
