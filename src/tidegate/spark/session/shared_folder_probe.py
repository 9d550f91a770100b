"""Trying whether a data folder is shared: what one side writes there, the other side reads.

Executors that each see a folder of their own under the same path write without an error, and
their rows are never seen again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import functions as fn

from tidegate.spark.ingest.parquet_files import PARQUET, literal, locate, stored_parquet
from tidegate.spark.ingest.parquet_writer import discard
from tidegate.spark.jobs.exchange import CODEC, COMMIT, under
from tidegate.spark.jobs.spark_errors import SPARK_ERRORS, cause_of
from tidegate.spark.session.engines import Shared
from tidegate.spark.session.timeout import in_time

if TYPE_CHECKING:
    from tidegate.spark.session.sessions import Session

_FILES = 8
"""Several, so that several executors read them."""
_ROWS = 64
"""Enough for every task to have some."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A folder below a root in which this process has written files, or why it could not."""

    root: str
    folder: str
    files: tuple[str, ...] = ()
    trouble: str = ""


@contextmanager
def tried_folder(root: str, files: int = _FILES) -> Iterator[Tried]:
    """Write small files below the root; they are gone at the end of the block."""
    folder = f"probe-{uuid4().hex}"
    try:
        yield _written(root, folder, files)
    finally:
        with suppress(OSError):
            discard(root, folder)


def _written(root: str, folder: str, files: int) -> Tried:
    system, base = locate(root.rstrip("/"))
    table = pa.table({"id": pa.array([1], pa.int64())})
    names = [f"{folder}/here/{number}{PARQUET}" for number in range(files)]
    try:
        system.create_dir(f"{base}/{folder}/here", recursive=True)
        for name in names:
            parquet.write_table(table, f"{base}/{name}", filesystem=system)
    except OSError as error:
        return Tried(root, folder, trouble=str(error).partition("\n")[0])
    return Tried(root, folder, tuple(under(root, name) for name in names))


def shared_by(session: Session, tried: Tried, within: float) -> Shared:
    """Let Spark read what is there, and write beside it."""
    if tried.trouble:
        return Shared(tried.root, trouble_here=tried.trouble)
    beside = f"{tried.folder}/there"
    try:
        read = in_time(session, within, lambda: _read(session, tried.files))
        written = in_time(session, within, lambda: _write(session, under(tried.root, beside)))
    except SPARK_ERRORS as error:
        return Shared(tried.root, trouble_there=cause_of(error).reason)
    if read is None or written is None:
        return Shared(tried.root, trouble_there=f"no answer within {within:g} s")
    seen = sum(file.rows for file in stored_parquet(tried.root, beside))
    return Shared(
        tried.root,
        written_there=written,
        seen_here=seen,
        written_here=len(tried.files),
        seen_there=read,
    )


def _read(session: Session, files: tuple[str, ...]) -> int:
    return session.read.schema("id bigint").parquet(*map(literal, files)).count()


def _write(session: Session, folder: str) -> int:
    """As a stage writes what it exchanges, by as many tasks as there is room for."""
    rows = session.range(_ROWS).select("id", fn.pmod("id", fn.lit(2)).alias("to"))
    saving = rows.write.mode("append").options(compression=CODEC, **COMMIT)
    saving.partitionBy("to").parquet(folder)
    return _ROWS
