"""Chunks: what may be delivered to a source, and when the source is complete. Pure decisions.

A source's chunks are numbered from 1. Delivering one again is harmless, and so is saying again how
many there are. Once that was said and all of them are there, in whichever order it came about, the
source has ended; that happens once, and `deliveries` sends END then. A source that follows a stream
does not end with what it has while a batch was begun and is not there.
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
from tidegate.store.runs.runs import Run, RunState

LARGEST = 2**63 - 2
"""What PostgreSQL can count up to, with one to spare."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """One piece of a source, as it was ingested. Files are relative to the deployment's root."""

    source: str
    number: int
    sha256: str
    rows: int
    bytes: int
    files: tuple[str, ...]
    shard: int
    watermark: int | None = None
    """Its latest event time less the allowed delay, in milliseconds since 1970, if it has one."""
    file_checksums: tuple[FileChecksum, ...] = ()
    """How its files have to be found again."""

    @property
    def batch(self) -> Batch:
        """What travels on the channels."""
        return Batch(self.files, self.rows, self.bytes)


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """A source of a run, as it stands."""

    run: Run
    source: str
    delivered: int
    """How many chunks there are."""
    declared: int | None
    """How many there will be; None until it is said."""
    watermark: int | None = None
    """The latest of its chunks' watermarks."""
    last_batch: int | None = None
    """The last chunk that was begun from a stream, if the source follows one."""


class Delivery(Enum):
    """What a delivered chunk is to its source."""

    NEW = "new"
    LAST = "last"
    """The last one that was missing: the source ends with it."""
    REPEATED = "repeated"


class Ending(Enum):
    """What saying how many chunks there are does to a source."""

    AWAITED = "awaited"
    """Some are missing; the last of them ends the source."""
    COMPLETE = "complete"
    REPEATED = "repeated"


def decide_delivery(facts: SourceFacts, chunk: Chunk, known: str | None) -> Delivery:
    """What to do with a chunk, when `known` is the digest of what came under its number before."""
    check_number(chunk.source, chunk.number, least=1)
    if known == chunk.sha256 and not _is_given_up(facts.run):
        return Delivery.REPEATED
    _refuse_closed(facts)
    if known is not None:
        raise ChunkConflict(facts.run.name, chunk.source, chunk.number, chunk.sha256, known)
    if facts.declared is not None and chunk.number > facts.declared:
        raise SourceEnded(facts.run.name, chunk.source, chunk.number, facts.declared)
    return Delivery.LAST if facts.declared == facts.delivered + 1 else Delivery.NEW


def decide_ending(
    facts: SourceFacts,
    chunks: int | None,
    missing: tuple[int, ...] = (),
    beyond: tuple[int, ...] = (),
) -> Ending:
    """What to do when a source is said to have so many chunks; None: those it has.

    `missing` are the first gaps before the largest number, `beyond` the first numbers above the
    count.
    """
    count = facts.delivered if chunks is None else chunks
    check_number(facts.source, count, least=0)
    if count == facts.declared and not _is_given_up(facts.run):
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
    """The watermark that a source's chunk moves it to; None where it does not move.

    >>> late = Chunk("sales", 7, "", 1, 1, (), 0, watermark=500)
    >>> watermark_after(None, late), watermark_after(499, late), watermark_after(500, late)
    (500, 500, None)
    """
    if chunk.watermark is None or (before is not None and chunk.watermark <= before):
        return None
    return chunk.watermark


def check_number(source: str, number: int, least: int) -> None:
    """Refuse what cannot be a number of a chunk, or their count."""
    if not least <= number <= LARGEST:
        raise InvalidChunkNumber(source=source, number=number)


def _is_given_up(run: Run) -> bool:
    """Whoever repeats what is done in a run that ended well need not hear that it is closed."""
    return run.state in {RunState.CANCELLED, RunState.FAILED}


def _refuse_closed(facts: SourceFacts) -> None:
    run = facts.run
    if run.state is not RunState.OPEN:
        raise RunEnded(run.name, facts.source, run.state.value, run.cause)
