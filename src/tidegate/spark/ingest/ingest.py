"""Taking what clients deliver: every chunk is checked and copied before anything is recorded.

    CSV ───────────── quick_csv ─────┐
    Parquet, Arrow ── quick_columns ─┼──▶ typed Parquet below the root folder ──▶ Batch
    whatever is doubtful ── Spark ───┘

The copy has the declared columns in their declared types, so that a stage reads it like any other
batch. A chunk that is refused leaves no file behind.
"""

from __future__ import annotations

import csv
import hashlib
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import ipc, parquet

from tidegate.errors import (
    BadValue,
    MissingColumns,
    NoSuchChunk,
    RowGroupTooLarge,
    UnknownSource,
    UnreadableChunk,
    WrongColumnType,
)
from tidegate.settings import Settings
from tidegate.spark.checker.limits import ChunkLimits, Meter
from tidegate.spark.checker.protocol import Check, Copied, Declared, NeedsSpark
from tidegate.spark.ingest.arrow_types import DeclaredColumn, arrow_schema, arrow_type
from tidegate.spark.ingest.column_reader import Misfit, Unfit, fitted, places_of, refuse_misfits
from tidegate.spark.ingest.csv_reader import Doubtful, QuickCsv
from tidegate.spark.ingest.layouts import Layout, layout_of, with_breaks
from tidegate.spark.ingest.parquet_files import PARQUET, locate, size
from tidegate.spark.ingest.parquet_writer import land
from tidegate.spark.ingest.quoted_breaks import records
from tidegate.spark.ingest.row_group_size import GroupRows, rows_of
from tidegate.spark.ingest.validation import (
    batches_to_vet,
    refuse_large_groups,
    vet_csv,
    vet_long_records,
    vet_parquet,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tidegate.dataflow import Batch
    from tidegate.pipeline import Pipeline
    from tidegate.pipeline.nodes import SourceField
    from tidegate.spark.session.sessions import Session

_BROKEN = (pa.ArrowException, csv.Error, ValueError, LookupError, ArithmeticError, TypeError)
"""What reading a damaged file may raise."""
ARROW = (".arrow", ".feather", ".ipc")
BLOCK_BYTES = 2 << 20
BLOCK_ROWS = 1 << 16
"""How much is read at a time."""
_ARROW_FILE = b"ARROW1"
_IN_MEMORY = "a table in memory"
_USUAL = ChunkLimits.from_settings(Settings())


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A file, and what its source declares."""

    source: str
    fields: tuple[DeclaredColumn, ...]
    file: str

    @property
    def is_arrow(self) -> bool:
        return self.file.lower().endswith(ARROW)

    @property
    def is_parquet(self) -> bool:
        return self.file.lower().endswith(PARQUET)


def check_chunk(
    asked: Check,
    limits: ChunkLimits = _USUAL,
    confined: Callable[[int], AbstractContextManager[object]] = nullcontext,
) -> Copied | NeedsSpark:
    """Check a chunk and copy it, unless only Spark can judge it: then it is within the limits.

    All that looks into a client's file is done here, in a process that may be lost. `confined`
    bounds what is allocated within a block: Spark needs as much for the same pages.
    """
    chunk = _Chunk(asked.source, asked.fields, asked.file)
    layout = _layout(chunk)
    _refuse_missing(chunk, layout.columns)
    meter = Meter(limits, chunk.source, chunk.file, size(chunk.file))
    try:
        batch = _copy_quickly(chunk, layout.columns, asked.root, asked.name, meter)
        return Copied(batch.files, batch.rows, batch.bytes)
    except (Doubtful, Misfit) as doubt:
        misfit = doubt if isinstance(doubt, Misfit) else None
    if misfit and chunk.is_arrow:
        raise _blamed(chunk, misfit)
    try:
        with confined(limits.spark_bytes) if chunk.is_parquet else nullcontext():
            _vet(chunk, layout.columns, replace(meter, decoded=0))
    except MemoryError:
        raise RowGroupTooLarge(chunk.source, chunk.file, limits.spark_bytes) from None
    blamed = (misfit.column, misfit.found) if misfit else None
    whole = with_breaks(layout, chunk.file)
    if whole.long_end:
        vet_long_records(meter, layout.columns, records(_pieces(chunk)))
    return NeedsSpark(whole, blamed)


def ingest(
    session: Session | Callable[[], Session],
    pipeline: Pipeline,
    source: str,
    file: str,
    root: str,
    beginning: str,
    check: Callable[[Check], Copied | NeedsSpark] = check_chunk,
) -> Batch:
    """Copy a chunk to files below `root` whose names begin with `beginning`.

    The beginning is one that was never used, so that nothing is overwritten. The session is asked
    for only when the file has something that only Spark can judge. `check` is where the file is
    looked into: here, or in a process of a `CheckerPool`.

    Raises `UnknownSource`, `NoSuchChunk`, `UnknownFormat`, `MissingColumns`, `WrongColumnType`,
    `BadValue`, `BadLine`, `UnreadableChunk` or a limit that is exceeded, each the chunk's own
    fault; `NoSpace`, `CheckerUnavailable` or `ChunkNotCopied`, which may be tried again.
    """
    fields = _declared(pipeline, source)
    declared = tuple(Declared(it.name, it.type) for it in fields)
    asked = Check(source, declared, _present(source, file), root, beginning)
    answer = check(asked)
    if isinstance(answer, Copied):
        return answer.batch
    from tidegate.spark.ingest.spark_copy import (  # checkers have no pyspark
        VettedChunk,
        copy_by_spark,
    )

    chunk = _Chunk(source, fields, asked.file)
    misfit = _blamed(chunk, Misfit(*answer.misfit, "")) if answer.misfit else None
    spark = session() if callable(session) else session
    vetted = VettedChunk(source, fields, asked.file, answer.layout)
    return copy_by_spark(spark, vetted, root, beginning, misfit)


def ingest_table(
    pipeline: Pipeline, source: str, table: pa.Table, root: str, beginning: str
) -> Batch:
    """Copy rows in memory as `ingest` copies a file of them."""
    chunk = _Chunk(source, _declared(pipeline, source), _IN_MEMORY)
    _refuse_missing(chunk, table.column_names)
    try:
        schema = _arrow_schema(chunk)
        places = places_of(schema, table.column_names)
        refuse_misfits(schema, [table.schema.field(place) for place in places])
        batches = table.select(places).to_batches(BLOCK_ROWS)
        return _land(chunk, root, beginning, schema, fitted(schema, batches))
    except Misfit as misfit:
        raise _blamed(chunk, misfit) from None


def digest(file: str) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    system, inside = locate(file)
    made = hashlib.sha256()
    with system.open_input_stream(inside, compression=None) as stream:
        while block := stream.read(BLOCK_BYTES):
            made.update(block)
    return made.hexdigest()


# --- What is there ---------------------------------------------------------------------------


def _declared(pipeline: Pipeline, source: str) -> tuple[SourceField, ...]:
    declared = pipeline.sources.get(source)
    if declared is None:
        raise UnknownSource(source=source, known=", ".join(pipeline.sources))
    return declared.schema


def _present(source: str, file: str) -> str:
    if "://" in file:
        return file
    path = Path(file).absolute()
    if not path.is_file():
        raise NoSuchChunk(source=source, file=str(path))
    return str(path)


def _layout(chunk: _Chunk) -> Layout:
    with _readable(chunk):
        if chunk.is_arrow:
            with _opened_arrow(chunk) as reader:
                return Layout("arrow", tuple(reader.schema.names))
        return layout_of(chunk.file)


def _refuse_missing(chunk: _Chunk, found: Sequence[str]) -> None:
    known = {name.casefold() for name in found}
    missing = tuple(it.name for it in chunk.fields if it.name.casefold() not in known)
    if missing:
        raise MissingColumns(chunk.source, chunk.file, missing, tuple(found))


@contextmanager
def _readable(chunk: _Chunk) -> Iterator[None]:
    """What cannot be read is broken."""
    try:
        yield
    except MemoryError:
        raise
    except (*_BROKEN, OSError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise UnreadableChunk(chunk.source, chunk.file, reason) from error


# --- Copying without Spark -------------------------------------------------------------------


def _copy_quickly(chunk: _Chunk, found: Sequence[str], root: str, name: str, meter: Meter) -> Batch:
    schema = _arrow_schema(chunk)
    if chunk.is_arrow:
        rows = meter.tables(_of_arrow(chunk, schema))
    elif chunk.is_parquet:
        rows = meter.tables(_of_parquet(chunk, schema))
    else:
        rows = meter.measured(QuickCsv(found, schema).read(meter.pieces(_pieces(chunk))))
    return _land(chunk, root, name, schema, rows)


def _arrow_schema(chunk: _Chunk) -> pa.Schema:
    schema = arrow_schema(chunk.fields)
    if schema is not None:
        return schema
    if chunk.is_arrow or chunk.file == _IN_MEMORY:
        kind = next(it.type for it in chunk.fields if arrow_type(it.type) is None)
        reason = f"columns of type {kind} are taken from Parquet files only"
        raise UnreadableChunk(chunk.source, chunk.file, reason)
    raise Doubtful("a type that only Spark knows")


def _land(
    chunk: _Chunk, root: str, name: str, schema: pa.Schema, rows: Iterable[pa.Table]
) -> Batch:
    try:
        return land(root, name, schema, rows)
    except Unfit as unfit:
        kind = _type_of(chunk, unfit.column)
        raise BadValue(chunk.source, chunk.file, unfit.column, unfit.value, kind) from unfit


def _pieces(chunk: _Chunk) -> Iterator[bytes]:
    system, inside = locate(chunk.file)
    with _readable(chunk), system.open_input_stream(inside, compression="detect") as stream:
        while piece := stream.read(BLOCK_BYTES):
            yield piece


def _of_parquet(chunk: _Chunk, schema: pa.Schema) -> Iterator[pa.Table]:
    with _readable(chunk), _opened_parquet(chunk) as file:
        stored = file.schema_arrow
        places = places_of(schema, stored.names)
        names = [stored.field(place).name for place in places]
        if any(stored.names.count(name) > 1 for name in names):
            raise Doubtful("two columns of one name")
        refuse_misfits(schema, [stored.field(place) for place in places])
        yield from fitted(schema, _groups(chunk, file, names))


def _groups(
    chunk: _Chunk, file: parquet.ParquetFile, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    with _opened_parquet(chunk, read_dictionary=[*names], metadata=file.metadata) as encoded:
        rows = GroupRows(file, encoded)
        for group in range(file.num_row_groups):
            most = rows.at(group, names)
            for batch in file.iter_batches(most, [group], columns=[*names], use_threads=False):
                yield batch.select(names)


def _opened_parquet(chunk: _Chunk, **how: object) -> parquet.ParquetFile:
    system, inside = locate(chunk.file)
    # Read ahead, Arrow would keep about the whole file in memory.
    return parquet.ParquetFile(
        inside, filesystem=system, buffer_size=BLOCK_BYTES, pre_buffer=False, **how
    )


def _of_arrow(chunk: _Chunk, schema: pa.Schema) -> Iterator[pa.Table]:
    with _readable(chunk), _opened_arrow(chunk) as reader:
        places = places_of(schema, reader.schema.names)
        refuse_misfits(schema, [reader.schema.field(place) for place in places])
        batches = (batch.select(places) for batch in _batches(reader))
        yield from fitted(schema, batches)


@contextmanager
def _opened_arrow(chunk: _Chunk) -> Iterator[ipc.RecordBatchFileReader]:
    """A file or a stream: Arrow has two formats, which their names do not tell apart."""
    system, inside = locate(chunk.file)
    with system.open_input_file(inside) as file:
        is_file = file.read(len(_ARROW_FILE)) == _ARROW_FILE
        file.seek(0)
        yield ipc.open_file(file) if is_file else ipc.open_stream(file)


def _batches(reader: ipc.RecordBatchFileReader) -> Iterator[pa.RecordBatch]:
    """In pieces: a file may be one large batch. Arrow checks nothing unless it is asked to."""
    is_stream = isinstance(reader, ipc.RecordBatchStreamReader)
    numbers = range(0 if is_stream else reader.num_record_batches)
    for batch in reader if is_stream else map(reader.get_batch, numbers):
        batch.validate(full=True)
        rows = rows_of(batch)
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


# --- What Spark may read ---------------------------------------------------------------------


def _vet(chunk: _Chunk, found: Sequence[str], meter: Meter) -> None:
    """Read the file to its end. Raises what is too large, or that it cannot be read."""
    if not chunk.is_parquet:
        vet_csv(meter, found, _pieces(chunk))
        return
    wanted = {it.name.casefold() for it in chunk.fields}
    with _readable(chunk), _opened_parquet(chunk) as file:
        names = {name for name in file.schema_arrow.names if name.casefold() in wanted}
        refuse_large_groups(meter, file, sorted(names))
        vet_parquet(meter, batches_to_vet(file, sorted(names)))


# --- What to blame ---------------------------------------------------------------------------


def _blamed(chunk: _Chunk, misfit: Misfit) -> WrongColumnType:
    declared = _type_of(chunk, misfit.column)
    return WrongColumnType(chunk.source, chunk.file, misfit.column, misfit.found, declared)


def _type_of(chunk: _Chunk, column: str) -> str:
    return next(field.type for field in chunk.fields if field.name == column)
