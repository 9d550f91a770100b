"""Writes Parquet files below a deployment's root folder, atomically and durably.

A file is written under a temporary name beside its own and moved when it is complete and synced to
the disk: a recorded chunk survives a crash of the machine.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import fs as arrow_fs
from pyarrow import parquet

from tidegate.dataflow import Batch
from tidegate.errors import NoSpace
from tidegate.spark.ingest.disk_space import refuse_below_floor
from tidegate.spark.ingest.parquet_files import PARQUET, locate, stored_parquet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

UNFINISHED = ".writing"
"""The suffix of files and folders while they are written."""

_CODEC = "lz4"
"""LZ4_RAW in Parquet: a third of the size of plain pages for a third more time."""


GROUP_ROWS = 50_000
"""The least rows of a row group: each group costs every reader about a millisecond."""
GROUP_BYTES = 64 << 20
"""A row group of so many bytes may have fewer rows: it is in memory until it is written."""


def write_file(root: str, name: str, schema: pa.Schema, tables: Iterable[pa.Table]) -> Batch:
    """Write tables as the file `name` below `root`; no file if there are no rows.

    Leaves no file if iterating over the tables raises. Raises `NoSpace`.
    """
    system, base = locate(root)
    path, unfinished = f"{base}/{name}{PARQUET}", f"{base}/{name}{PARQUET}{UNFINISHED}"
    with space_on(root), _removed_on_error(system, unfinished):
        system.create_dir(path.rpartition("/")[0], recursive=True)
        rows = _write(system, unfinished, schema, _while_there_is_space(root, tables))
        if not rows:
            system.delete_file(unfinished)
            return Batch((), 0)
        _move_durably(system, unfinished, path)
    return Batch((name + PARQUET,), rows, int(system.get_file_info(path).size))


def move_files(root: str, folder: str, name: str) -> Batch:
    """Move the Parquet files of a folder beside it, to names that start with `name`."""
    system, base = locate(root)
    files = []
    written = [it for it in stored_parquet(root, folder) if it.rows]
    for number, it in enumerate(written):
        files.append(f"{name}-{number}{PARQUET}")
        _move_durably(system, f"{base}/{it.path}", f"{base}/{files[-1]}")
    return Batch((*files,), sum(it.rows for it in written), sum(it.bytes for it in written))


def remove_leftovers(root: str, name: str) -> None:
    """Remove the files that a killed `write_file` leaves, before or after the move."""
    system, base = locate(root)
    for ending in (UNFINISHED, ""):
        with suppress(OSError):
            system.delete_file(f"{base}/{name}{PARQUET}{ending}")


def discard(root: str, folder: str) -> None:
    """Remove a folder with its content, if it exists."""
    system, base = locate(root)
    with suppress(FileNotFoundError):
        system.delete_dir(f"{base}/{folder}")


@contextmanager
def space_on(root: str) -> Iterator[None]:
    """Raise `NoSpace` for a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise NoSpace(root) from error
        raise


@contextmanager
def _removed_on_error(system: arrow_fs.FileSystem, path: str) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with suppress(OSError):
            system.delete_file(path)
        raise


def _write(
    system: arrow_fs.FileSystem, path: str, schema: pa.Schema, tables: Iterable[pa.Table]
) -> int:
    rows = 0
    with parquet.ParquetWriter(
        path,
        schema,
        filesystem=system,
        compression=_CODEC,
        use_dictionary=False,
        store_decimal_as_integer=True,
        store_schema=False,
    ) as writer:
        for group in _row_groups(tables):
            writer.write_table(group)
            rows += group.num_rows
    # Arrow keeps the memory for the next file, in every thread that has written one.
    pa.default_memory_pool().release_unused()
    return rows


def _while_there_is_space(root: str, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same tables; raises `NoSpace` before the disk is full, since the database needs space."""
    for table in tables:
        refuse_below_floor(root)
        yield table


def _row_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The tables, with small ones combined."""
    gathered: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        gathered.append(table)
        rows, size = rows + table.num_rows, size + table.nbytes
        if rows >= GROUP_ROWS or size >= GROUP_BYTES:
            yield pa.concat_tables(gathered)
            gathered.clear()
            rows = size = 0
    if gathered:
        yield pa.concat_tables(gathered)


def _move_durably(system: arrow_fs.FileSystem, unfinished: str, path: str) -> None:
    is_local = isinstance(system, arrow_fs.LocalFileSystem)
    if is_local:
        _sync(unfinished)
    system.move(unfinished, path)
    if is_local:
        _sync(path.rpartition("/")[0])


def _sync(path: str) -> None:
    """Sync a file, or the entries of a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
