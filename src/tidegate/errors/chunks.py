"""Chunks, files and streams that cannot be taken as they are."""

from __future__ import annotations

from tidegate.errors.base import counted, listed
from tidegate.errors.runs import RunError
from tidegate.errors.usage import UsageError


class UnknownSource(RunError):
    """Data was sent to a source that the pipeline does not have."""

    http_status = 404

    source: str
    known: str
    message = "there is no source {source!r}; the pipeline's sources are: {known}"


class InvalidChunkNumber(RunError):
    """Chunks are numbered from 1, and their count is not negative."""

    http_status = 400

    source: str
    number: int
    message = (
        "{number} cannot be the number or the count of chunks of source {source!r};"
        " chunks are numbered 1, 2, 3, …"
    )


class ChunkConflict(RunError):
    """Something else was delivered under this number before."""

    http_status = 409

    run: str
    source: str
    number: int
    sha256: str
    known: str

    def __str__(self) -> str:
        return (
            f"chunk {self.number} of source {self.source!r} of run {self.run!r} was delivered"
            f" before with other content (SHA-256 {self.known[:12]}…, not {self.sha256[:12]}…);"
            " deliver the same bytes again, or others under a number of their own"
        )


class SourceEnded(RunError):
    """The source was declared to have fewer chunks than this one's number."""

    http_status = 409

    run: str
    source: str
    number: int
    declared: int
    message = (
        "the number of chunks of source {source!r} of run {run!r} was declared to be {declared}, so"
        " there is no chunk {number}; use another run for more data"
    )


class CountConflict(RunError):
    """The source was declared to have another number of chunks before."""

    http_status = 409

    run: str
    source: str
    chunks: int
    declared: int
    message = (
        "the number of chunks of source {source!r} of run {run!r} was declared to be {declared}"
        " before, and cannot be {chunks} instead"
    )


class ChunksMissing(RunError):
    """A source is to end with what was delivered, which has gaps."""

    http_status = 409

    run: str
    source: str
    missing: tuple[int, ...]

    def __str__(self) -> str:
        numbers = listed([str(number) for number in self.missing])
        return (
            f"source {self.source!r} of run {self.run!r} cannot end with the chunks it has:"
            f" missing before the last one: {numbers}. Deliver them, or declare how many chunks"
            " there are"
        )


class ChunksBeyond(RunError):
    """More was delivered than the source is declared to have."""

    http_status = 409

    run: str
    source: str
    chunks: int
    beyond: tuple[int, ...]

    def __str__(self) -> str:
        numbers = listed([str(number) for number in self.beyond])
        return (
            f"source {self.source!r} of run {self.run!r} cannot have"
            f" {counted(self.chunks, 'chunk')}: delivered beyond them: {numbers}."
            " Declare a count that includes them, or cancel the run"
        )


class NotABatch(RunError):
    """Something was sent that a stage on Spark cannot read."""

    kind: str
    message = "a stage on Spark takes batches of files, not a {kind}"


class NoSuchChunk(RunError):
    """A file that was to be delivered is not there."""

    source: str
    file: str
    message = "there is no file {file}, which was to be a chunk of source {source!r}"


class NoDataFolder(UsageError):
    """Data is to be taken from a folder that is not there."""

    message = "there is no folder {folder}; give the folder of the sources with --data."

    folder: str


class NoSourceFolder(UsageError):
    """A data folder lacks the folders of some sources."""

    message = (
        "{folder} has no folder for: {sources}. Put the files of each source below a folder of its"
        " name, such as {folder}/<source>/1.csv; an empty folder is a source without rows."
    )

    folder: str
    sources: str


class UnexpectedFiles(UsageError):
    """A source's folder has something that is no chunk, and may have been meant as one."""

    message = (
        "the folder of source {source!r} has what is no chunk: {files}. Chunks are files that end"
        " with {endings}; rename the chunks among them and remove the rest."
    )

    source: str
    files: str
    endings: str


class NotAStream(RunError):
    """A DataFrame was to be followed that does not go on."""

    source: str
    message = (
        "source {source!r} cannot follow this DataFrame, which is no stream: make it by"
        " spark.readStream, or write it to files and deliver those"
    )


class StreamOverConnect(RunError):
    """A stream was to be followed over Spark Connect, where batches are taken by the server."""

    source: str
    message = (
        "source {source!r} cannot follow a stream over Spark Connect: its batches would be handed"
        " over in the server's process, which has no pipeline. Use a classic session for it"
    )


class StreamFailed(RunError):
    """A stream that is followed has ended by an error."""

    retryable = True

    run: str
    source: str
    reason: str
    message = (
        "the stream of source {source!r} of run {run!r} has failed: {reason}. What was taken is"
        " recorded; follow it again with the same checkpoint to go on"
    )


class UnsupportedData(RunError):
    """`put` was given something that cannot be a chunk."""

    source: str
    kind: str

    message = (
        "source {source!r} does not take {kind}; give a path or glob, a Spark DataFrame, an Arrow"
        " table or reader, or a pandas DataFrame"
    )


class OneFileExpected(RunError):
    """Several files were given under one chunk number."""

    source: str
    pattern: str
    files: int

    message = (
        "{pattern!r}, given for one chunk of source {source!r}, matches {files} files; leave out"
        " the chunk number, or give one file"
    )


class NoMatchingFile(RunError):
    """A path or glob that was given as a chunk matches no file."""

    source: str
    pattern: str

    message = "no file matches {pattern!r}, given for source {source!r}"


class MissingColumns(RunError):
    """A delivered file lacks columns that its source declares."""

    http_status = 422

    source: str
    file: str
    missing: tuple[str, ...]
    found: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.file} has no column {', '.join(self.missing)}, which source {self.source!r}"
            f" declares; its columns are: {', '.join(self.found) or 'none'}"
        )


class BadValue(RunError):
    """A delivered file has a value that is not of its declared type; `__cause__` is Spark's error.

    `line` is known for CSV files that are not too long.
    """

    http_status = 422

    source: str
    file: str
    column: str
    value: str
    type: str
    line: int | None = None

    def __str__(self) -> str:
        line = f", line {self.line}" if self.line else ""
        return (
            f"{self.file}{line}: {self.column} is {self.value!r}, which cannot be read as"
            f" {self.type}; correct the value, or the type in the schema of source {self.source!r}"
        )


class BadLine(RunError):
    """A line of a delivered CSV file does not have one field for every column of its header.

    `line` is known for files that are not too long.
    """

    http_status = 422

    source: str
    file: str
    columns: int
    line: int | None = None

    def __str__(self) -> str:
        line = f"line {self.line}" if self.line else "a line"
        return (
            f"{self.file}: {line} cannot be split into the {self.columns} columns of the header;"
            f" correct the line, which was to be a row of source {self.source!r}"
        )


class WrongColumnType(RunError):
    """A delivered file stores a column as another type than its source declares."""

    http_status = 422

    source: str
    file: str
    column: str
    found: str
    declared: str
    message = (
        "{file} stores {column} as {found}, which cannot be read as {declared};"
        " store it as that, or change the type in the schema of source {source!r}"
    )


class UnreadableChunk(RunError):
    """A delivered file is truncated, corrupt, or not of the format of its name."""

    http_status = 422

    source: str
    file: str
    reason: str
    message = "{file} cannot be read as a chunk of source {source!r}: {reason}; write it again"


class ChunkNotCopied(RunError):
    """Spark failed while it copied a chunk, and the chunk is not known to be the reason."""

    http_status = 503

    retryable = True
    source: str
    file: str
    spark_condition: str
    reason: str
    message = "{file}, a chunk of source {source!r}, was not copied: {reason} [{spark_condition}]"


class NoSpace(RunError):
    """The disk is full. What was being written is removed, so the same call may succeed later."""

    http_status = 507

    retryable = True
    where: str
    message = "there is no space left on {where}; free some and try again"


class SpaceReserved(NoSpace):
    """The rest of the disk is kept for the database. Nothing of the chunk was written."""

    free: int
    reserve: int
    message = (
        "{where} has {free:,} bytes free, of which {reserve:,} are kept so that the database works;"
        " free some, cancel runs, or lower the setting disk_reserve_bytes, and try again"
    )


class UnknownFormat(RunError):
    """A delivered file is of a kind that cannot be read."""

    http_status = 415

    file: str
    message = (
        "{file} is neither CSV, Parquet nor Arrow by its name;"
        " deliver *.csv, *.csv.gz, *.csv.bz2, *.parquet, *.arrow, *.feather or *.ipc"
    )
