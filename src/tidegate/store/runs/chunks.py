"""Chunks: which deliveries a source accepts, and when it is complete. Pure decisions.

The chunks of a source are numbered from 1. Delivering a chunk again is harmless, and so is
declaring their number again. When the number is declared and all chunks are delivered, in either
order, the source has ended: this happens once, and `deliveries` then sends END. A source that reads
a stream cannot end with the chunks it has while a started batch is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tidegate.dataflow import Batch
from tidegate.errors import (
    BatchAborted,
    ChunkConflict,
    ChunksBeyond,
    ChunksMissing,
    CountConflict,
    InvalidChunkNumber,
    RunEnded,
    SourceEnded,
)
from tidegate.store.checkpoints.checkpoints import FileChecksum
from tidegate.store.runs.runs import RunInfo, RunState

LARGEST = 2**63 - 2
"""One less than the largest `bigint`."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A numbered piece of a source. Files are relative to the deployment's root."""

    source: str
    number: int
    sha256: str
    rows: int
    bytes: int
    files: tuple[str, ...]
    shard: int
    watermark: int | None = None
    """Latest event time less the allowed delay, in milliseconds since 1970, if there is any."""
    file_checksums: tuple[FileChecksum, ...] = ()
    """Verified when the files are read again."""

    @property
    def batch(self) -> Batch:
        """The payload on the channels."""
        return Batch(self.files, self.rows, self.bytes)


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """The state of a source of a run."""

    run: RunInfo
    source: str
    delivered: int
    """Number of chunks delivered."""
    declared: int | None
    """Number of chunks expected; None until it is declared."""
    watermark: int | None = None
    """The latest of its chunks' watermarks."""
    last_batch: int | None = None
    """The last batch that was started, if the source reads a stream."""


class ChunkDelivery(Enum):
    """How a source treats a delivered chunk."""

    NEW = "new"
    LAST = "last"
    """The last missing chunk: the source ends with it."""
    REPEATED = "repeated"


class Ending(Enum):
    """How a source treats the declared number of its chunks."""

    AWAITED = "awaited"
    """Chunks are missing; the last of them ends the source."""
    COMPLETE = "complete"
    REPEATED = "repeated"


def decide_delivery(facts: SourceFacts, chunk: Chunk, known: str | None) -> ChunkDelivery:
    """What to do with a chunk; `known` is the digest of an earlier one with its number."""
    check_number(chunk.source, chunk.number, least=1)
    if known == chunk.sha256 and not _is_unsuccessful(facts.run):
        return ChunkDelivery.REPEATED
    _refuse_closed(facts)
    if known is not None:
        raise ChunkConflict(facts.run.name, chunk.source, chunk.number, chunk.sha256, known)
    if facts.declared is not None and chunk.number > facts.declared:
        raise SourceEnded(facts.run.name, chunk.source, chunk.number, facts.declared)
    return ChunkDelivery.LAST if facts.declared == facts.delivered + 1 else ChunkDelivery.NEW


def decide_ending(
    facts: SourceFacts,
    chunks: int | None,
    missing: tuple[int, ...] = (),
    beyond: tuple[int, ...] = (),
) -> Ending:
    """What to do when a source declares its number of chunks; None: those delivered.

    `missing` are the first gaps before the largest number, `beyond` the first numbers above the
    declared one.
    """
    count = facts.delivered if chunks is None else chunks
    check_number(facts.source, count, least=0)
    if count == facts.declared and not _is_unsuccessful(facts.run):
        return Ending.REPEATED
    _refuse_closed(facts)
    if facts.declared is not None:
        raise CountConflict(facts.run.name, facts.source, count, facts.declared)
    if chunks is None and missing:
        raise ChunksMissing(facts.run.name, facts.source, missing)
    if chunks is None and facts.last_batch is not None and facts.last_batch > facts.delivered:
        raise BatchAborted(facts.run.name, facts.source, facts.last_batch - 1, facts.last_batch)
    if beyond:
        raise ChunksBeyond(facts.run.name, facts.source, count, beyond)
    return Ending.COMPLETE if count == facts.delivered else Ending.AWAITED


def watermark_after(before: int | None, chunk: Chunk) -> int | None:
    """The watermark of a source after a chunk; None where it does not change.

    >>> late = Chunk("sales", 7, "", 1, 1, (), 0, watermark=500)
    >>> watermark_after(None, late), watermark_after(499, late), watermark_after(500, late)
    (500, 500, None)
    """
    if chunk.watermark is None or (before is not None and chunk.watermark <= before):
        return None
    return chunk.watermark


def check_number(source: str, number: int, least: int) -> None:
    """Raise `InvalidChunkNumber` for an invalid chunk number or count."""
    if not least <= number <= LARGEST:
        raise InvalidChunkNumber(source=source, number=number)


def _is_unsuccessful(run: RunInfo) -> bool:
    """Repetitions are accepted in a run that ended, and refused in one without a result."""
    return run.state in {RunState.CANCELLED, RunState.FAILED}


def _refuse_closed(facts: SourceFacts) -> None:
    run = facts.run
    if run.state is not RunState.OPEN:
        raise RunEnded(run.name, facts.source, run.state.value, run.cause)
