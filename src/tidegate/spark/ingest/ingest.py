"""Ingests chunks: each is checked and copied before anything is recorded.

    CSV ───────────── csv_reader ────┐
    Parquet, Arrow ── column_reader ─┼──▶ typed Parquet below the root folder ──▶ Batch
    where Arrow and Spark ── Spark ──┘
    might differ

The copy has the declared columns in their declared types, so that a stage reads it like any other
batch. A refused chunk leaves no file.
"""

from __future__ import annotations

import csv
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
from tidegate.spark.checker.protocol import Check, Copied, DeclaredField, NeedsSpark
from tidegate.spark.ingest.arrow_types import DeclaredColumn, arrow_schema, arrow_type
from tidegate.spark.ingest.column_reader import (
    IncompatibleType,
    LossyValue,
    converted,
    positions_of,
    refuse_incompatible,
)
from tidegate.spark.ingest.csv_reader import ArrowCsvReader, SparkRequired
from tidegate.spark.ingest.layouts import Layout, layout_of, with_breaks
from tidegate.spark.ingest.parquet_files import PARQUET, locate, size
from tidegate.spark.ingest.parquet_writer import write_file
from tidegate.spark.ingest.quoted_breaks import records
from tidegate.spark.ingest.row_group_size import GroupRows, rows_of
from tidegate.spark.ingest.validation import (
    batches_to_validate,
    refuse_large_groups,
    validate_csv,
    validate_long_records,
    validate_parquet,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tidegate.dataflow import Batch
    from tidegate.pipeline import Pipeline
    from tidegate.pipeline.nodes import SourceField
    from tidegate.spark.session.sessions import Session

_BROKEN = (pa.ArrowException, csv.Error, ValueError, LookupError, ArithmeticError, TypeError)
"""Errors of reading a damaged file."""
ARROW = (".arrow", ".feather", ".ipc")
BLOCK_BYTES = 2 << 20
BLOCK_ROWS = 1 << 16
"""The amounts read at a time."""
_ARROW_FILE = b"ARROW1"
_IN_MEMORY = "a table in memory"
_DEFAULT_LIMITS = ChunkLimits.from_settings(Settings())


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A file, and the declared columns of its source."""

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
    request: Check,
    limits: ChunkLimits = _DEFAULT_LIMITS,
    confined: Callable[[int], AbstractContextManager[object]] = nullcontext,
) -> Copied | NeedsSpark:
    """Check a chunk and copy it, unless only Spark can read it: then it is within the limits.

    All reading of a client's file is done here, in a process that may crash. `confined` limits
    the memory allocated within a block: Spark needs as much for the same pages.
    """
    chunk = _Chunk(request.source, request.fields, request.file)
    layout = _layout(chunk)
    _refuse_missing(chunk, layout.columns)
    meter = Meter(limits, chunk.source, chunk.file, size(chunk.file))
    try:
        batch = _copy_by_arrow(chunk, layout.columns, request.root, request.name, meter)
        return Copied(batch.files, batch.rows, batch.bytes)
    except (SparkRequired, IncompatibleType) as reason:
        wrong_type = reason if isinstance(reason, IncompatibleType) else None
    if wrong_type and chunk.is_arrow:
        raise _wrong_type(chunk, wrong_type)
    try:
        with confined(limits.spark_bytes) if chunk.is_parquet else nullcontext():
            _validate(chunk, layout.columns, replace(meter, decoded=0))
    except MemoryError:
        raise RowGroupTooLarge(chunk.source, chunk.file, limits.spark_bytes) from None
    column = (wrong_type.column, wrong_type.found) if wrong_type else None
    whole = with_breaks(layout, chunk.file)
    if whole.long_end:
        validate_long_records(meter, layout.columns, records(_pieces(chunk)))
    return NeedsSpark(whole, column)


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

    `beginning` is unique, so that nothing is overwritten. The session is opened only if the file
    has something that only Spark can read. `check` reads the file: in this process, or in a
    process of a `CheckerPool`.

    Raises `UnknownSource`, `NoSuchChunk`, `UnknownFormat`, `MissingColumns`, `WrongColumnType`,
    `BadValue`, `BadLine`, `UnreadableChunk` or an exceeded limit, which are errors of the chunk;
    `NoSpace`, `CheckerUnavailable` or `ChunkNotCopied`, which may be retried.
    """
    fields = _declared(pipeline, source)
    declared = tuple(DeclaredField(it.name, it.type) for it in fields)
    request = Check(source, declared, _present(source, file), root, beginning)
    answer = check(request)
    if isinstance(answer, Copied):
        return answer.batch
    from tidegate.spark.ingest.spark_copy import (  # checkers have no pyspark
        ValidatedChunk,
        copy_by_spark,
    )

    chunk = _Chunk(source, fields, request.file)
    wrong_type = (
        _wrong_type(chunk, IncompatibleType(*answer.wrong_type, "")) if answer.wrong_type else None
    )
    spark = session() if callable(session) else session
    validated = ValidatedChunk(source, fields, request.file, answer.layout)
    return copy_by_spark(spark, validated, root, beginning, wrong_type)


def ingest_table(
    pipeline: Pipeline, source: str, table: pa.Table, root: str, beginning: str
) -> Batch:
    """Copy rows in memory as `ingest` copies a file of them."""
    chunk = _Chunk(source, _declared(pipeline, source), _IN_MEMORY)
    _refuse_missing(chunk, table.column_names)
    try:
        schema = _arrow_schema(chunk)
        places = positions_of(schema, table.column_names)
        refuse_incompatible(schema, [table.schema.field(place) for place in places])
        batches = table.select(places).to_batches(BLOCK_ROWS)
        return _write_copy(chunk, root, beginning, schema, converted(schema, batches))
    except IncompatibleType as wrong_type:
        raise _wrong_type(chunk, wrong_type) from None


# --- Source and file -------------------------------------------------------------------------


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
    """Raise `UnreadableChunk` for any error of reading."""
    try:
        yield
    except MemoryError:
        raise
    except (*_BROKEN, OSError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise UnreadableChunk(chunk.source, chunk.file, reason) from error


# --- Copying without Spark -------------------------------------------------------------------


def _copy_by_arrow(
    chunk: _Chunk, found: Sequence[str], root: str, name: str, meter: Meter
) -> Batch:
    schema = _arrow_schema(chunk)
    if chunk.is_arrow:
        rows = meter.tables(_of_arrow(chunk, schema))
    elif chunk.is_parquet:
        rows = meter.tables(_of_parquet(chunk, schema))
    else:
        rows = meter.measured(ArrowCsvReader(found, schema).read(meter.pieces(_pieces(chunk))))
    return _write_copy(chunk, root, name, schema, rows)


def _arrow_schema(chunk: _Chunk) -> pa.Schema:
    schema = arrow_schema(chunk.fields)
    if schema is not None:
        return schema
    if chunk.is_arrow or chunk.file == _IN_MEMORY:
        kind = next(it.type for it in chunk.fields if arrow_type(it.type) is None)
        reason = f"columns of type {kind} are taken from Parquet files only"
        raise UnreadableChunk(chunk.source, chunk.file, reason)
    raise SparkRequired("a type that only Spark reads")


def _write_copy(
    chunk: _Chunk, root: str, name: str, schema: pa.Schema, rows: Iterable[pa.Table]
) -> Batch:
    try:
        return write_file(root, name, schema, rows)
    except LossyValue as shortfalls:
        kind = _type_of(chunk, shortfalls.column)
        raise BadValue(
            chunk.source, chunk.file, shortfalls.column, shortfalls.value, kind
        ) from shortfalls


def _pieces(chunk: _Chunk) -> Iterator[bytes]:
    system, inside = locate(chunk.file)
    with _readable(chunk), system.open_input_stream(inside, compression="detect") as stream:
        while piece := stream.read(BLOCK_BYTES):
            yield piece


def _of_parquet(chunk: _Chunk, schema: pa.Schema) -> Iterator[pa.Table]:
    with _readable(chunk), _opened_parquet(chunk) as file:
        stored = file.schema_arrow
        places = positions_of(schema, stored.names)
        names = [stored.field(place).name for place in places]
        if any(stored.names.count(name) > 1 for name in names):
            raise SparkRequired("two columns of one name")
        refuse_incompatible(schema, [stored.field(place) for place in places])
        yield from converted(schema, _groups(chunk, file, names))


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
    # With read-ahead, Arrow would have about the whole file in memory.
    return parquet.ParquetFile(
        inside, filesystem=system, buffer_size=BLOCK_BYTES, pre_buffer=False, **how
    )


def _of_arrow(chunk: _Chunk, schema: pa.Schema) -> Iterator[pa.Table]:
    with _readable(chunk), _opened_arrow(chunk) as reader:
        places = positions_of(schema, reader.schema.names)
        refuse_incompatible(schema, [reader.schema.field(place) for place in places])
        batches = (batch.select(places) for batch in _batches(reader))
        yield from converted(schema, batches)


@contextmanager
def _opened_arrow(chunk: _Chunk) -> Iterator[ipc.RecordBatchFileReader]:
    """Opens either of the two Arrow formats, file and stream, which share their suffixes."""
    system, inside = locate(chunk.file)
    with system.open_input_file(inside) as file:
        is_file = file.read(len(_ARROW_FILE)) == _ARROW_FILE
        file.seek(0)
        yield ipc.open_file(file) if is_file else ipc.open_stream(file)


def _batches(reader: ipc.RecordBatchFileReader) -> Iterator[pa.RecordBatch]:
    """The batches in pieces, since a file may be one large batch; Arrow does not validate them."""
    is_stream = isinstance(reader, ipc.RecordBatchStreamReader)
    numbers = range(0 if is_stream else reader.num_record_batches)
    for batch in reader if is_stream else map(reader.get_batch, numbers):
        batch.validate(full=True)
        rows = rows_of(batch)
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


# --- Validation for Spark --------------------------------------------------------------------


def _validate(chunk: _Chunk, found: Sequence[str], meter: Meter) -> None:
    """Read the whole file. Raises an exceeded limit, or `UnreadableChunk`."""
    if not chunk.is_parquet:
        validate_csv(meter, found, _pieces(chunk))
        return
    declared = {it.name.casefold() for it in chunk.fields}
    with _readable(chunk), _opened_parquet(chunk) as file:
        names = {name for name in file.schema_arrow.names if name.casefold() in declared}
        refuse_large_groups(meter, file, sorted(names))
        validate_parquet(meter, batches_to_validate(file, sorted(names)))


# --- Errors ----------------------------------------------------------------------------------


def _wrong_type(chunk: _Chunk, wrong_type: IncompatibleType) -> WrongColumnType:
    declared = _type_of(chunk, wrong_type.column)
    return WrongColumnType(chunk.source, chunk.file, wrong_type.column, wrong_type.found, declared)


def _type_of(chunk: _Chunk, column: str) -> str:
    return next(field.type for field in chunk.fields if field.name == column)
