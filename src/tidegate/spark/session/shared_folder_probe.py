"""Probes whether a data folder is shared: what one side writes there, the other side reads.

Executors that each have a local folder under the same path write without an error, and their rows
are lost.
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
from tidegate.spark.session.engines import FolderSharing
from tidegate.spark.session.timeout import run_with_timeout

if TYPE_CHECKING:
    from tidegate.spark.session.sessions import Session

_FILES = 8
"""Several, so that several executors read them."""
_ROWS = 64
"""Enough for every task to have rows."""


@dataclass(frozen=True, slots=True)
class ProbeFolder:
    """A folder below a root with files that this process has written, or the error."""

    root: str
    folder: str
    files: tuple[str, ...] = ()
    error: str = ""


@contextmanager
def probe_folder(root: str, files: int = _FILES) -> Iterator[ProbeFolder]:
    """Write small files below the root; they are removed at the end of the block."""
    folder = f"probe-{uuid4().hex}"
    try:
        yield _written(root, folder, files)
    finally:
        with suppress(OSError):
            discard(root, folder)


def _written(root: str, folder: str, files: int) -> ProbeFolder:
    system, base = locate(root.rstrip("/"))
    table = pa.table({"id": pa.array([1], pa.int64())})
    names = [f"{folder}/here/{number}{PARQUET}" for number in range(files)]
    try:
        system.create_dir(f"{base}/{folder}/here", recursive=True)
        for name in names:
            parquet.write_table(table, f"{base}/{name}", filesystem=system)
    except OSError as error:
        return ProbeFolder(root, folder, error=str(error).partition("\n")[0])
    return ProbeFolder(root, folder, tuple(under(root, name) for name in names))


def probe_sharing(session: Session, probed: ProbeFolder, within: float) -> FolderSharing:
    """Let Spark read the files of the folder, and write others beside them."""
    if probed.error:
        return FolderSharing(probed.root, error_here=probed.error)
    beside = f"{probed.folder}/there"
    try:
        read = run_with_timeout(session, within, lambda: _read(session, probed.files))
        written = run_with_timeout(
            session, within, lambda: _write(session, under(probed.root, beside))
        )
    except SPARK_ERRORS as error:
        return FolderSharing(probed.root, error_there=cause_of(error).reason)
    if read is None or written is None:
        return FolderSharing(probed.root, error_there=f"no result within {within:g} s")
    seen = sum(file.rows for file in stored_parquet(probed.root, beside))
    return FolderSharing(
        probed.root,
        written_there=written,
        seen_here=seen,
        written_here=len(probed.files),
        seen_there=read,
    )


def _read(session: Session, files: tuple[str, ...]) -> int:
    return session.read.schema("id bigint").parquet(*map(literal, files)).count()


def _write(session: Session, folder: str) -> int:
    """Write as a stage does for an exchange, by as many tasks as there are slots."""
    rows = session.range(_ROWS).select("id", fn.pmod("id", fn.lit(2)).alias("to"))
    saving = rows.write.mode("append").options(compression=CODEC, **COMMIT)
    saving.partitionBy("to").parquet(folder)
    return _ROWS
