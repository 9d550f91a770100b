"""Chunks of a hostile client: damaged, or a few kilobytes that stand for gigabytes.

Each is made here, with little memory, and is the source `notes` of `bench._hostile_pipeline`.
"""

from __future__ import annotations

import bz2
import io
import random
import zlib
from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
from pyarrow import ipc, parquet

MEGABYTE = 1 << 20
COLUMNS = ("author", "note", "amount")
HEADER = b"author,note,amount\n"
Chunk = tuple[str, bytes]
"""The format that is claimed, and the body."""


def damaged_parquet(seed: int) -> Chunk:
    """An ordinary file with some bits of its footer flipped."""
    body = bytearray(_parquet(_rows(["a"] * 8)))
    dice = random.Random(seed)
    footer = int.from_bytes(body[-8:-4], "little")
    for _ in range(dice.randint(1, 4)):
        body[-8 - dice.randrange(footer)] ^= 1 << dice.randrange(8)
    return "parquet", bytes(body)


def damaged_arrow(seed: int) -> Chunk:
    """An ordinary stream with some bits flipped."""
    body = bytearray(_arrow(_rows(["a"] * 8), None))
    dice = random.Random(seed)
    for _ in range(dice.randint(1, 4)):
        body[dice.randrange(len(body))] ^= 1 << dice.randrange(8)
    return "arrow", bytes(body)


def one_long_value() -> Chunk:
    """One string of 400 MB."""
    return "parquet", _parquet(_rows(["x" * (400 * MEGABYTE)]), use_dictionary=False)


def repeated_value() -> Chunk:
    """A dictionary of one value of 1 MB, 13,600 times."""
    indexes = pa.repeat(pa.scalar(0, pa.int32()), 13_600)
    notes = pa.DictionaryArray.from_arrays(indexes, pa.array(["y" * MEGABYTE]))
    short = pa.repeat(pa.scalar("1"), 13_600)
    return "parquet", _parquet(pa.table([short, notes, short], names=[*COLUMNS]))


def unused_value() -> Chunk:
    """A dictionary with a value of 400 MB that no row has, beside a type that only Spark judges."""
    notes = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), ["n", "u" * 400 * MEGABYTE])
    amounts = pa.array([1], pa.int32())
    return "parquet", _parquet(pa.table([["ann"], notes, amounts], names=[*COLUMNS]))


def compressed_arrow() -> Chunk:
    """Batches whose compressed buffers become 4 GB."""
    table = _rows(["z" * (64 * MEGABYTE)])
    return "arrow", _arrow(table, "zstd", times=64)


def long_line() -> Chunk:
    """Three gigabytes without a line break, compressed to three megabytes."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    piece = b"l" * (16 * MEGABYTE)
    parts = [packer.compress(HEADER)]
    parts += [packer.compress(piece) for _ in range(192)]
    return "csv.gz", b"".join([*parts, packer.flush()])


def many_lines() -> Chunk:
    """Twenty gigabytes of text in one megabyte: the same compressed stream over and over."""
    once = bz2.compress(b"ann,n,1\n" * (4 * MEGABYTE))
    return "csv.bz2", bz2.compress(HEADER) + once * 640


def nul_character() -> Chunk:
    """An amount that cannot be cast, and whose text PostgreSQL does not store."""
    table = pa.table([["ann"], ["n"], ["1\x00\ud7ff2"]], names=[*COLUMNS])
    return "parquet", _parquet(table)


def random_bytes(seed: int) -> Chunk:
    """Nothing at all, in every format."""
    dice = random.Random(seed)
    kind = dice.choice(["csv", "csv.gz", "csv.bz2", "parquet", "arrow"])
    return kind, dice.randbytes(dice.randint(0, 4096))


BOMBS: Mapping[str, Callable[[], Chunk]] = {
    "one long value": one_long_value,
    "a repeated value": repeated_value,
    "an unused value": unused_value,
    "compressed Arrow": compressed_arrow,
    "a line of 3 GB": long_line,
    "20 GB of lines": many_lines,
    "a NUL character": nul_character,
}


def damaged() -> Iterator[tuple[str, Chunk]]:
    """Damaged chunks without end."""
    seed = 0
    while True:
        yield "damaged Parquet", damaged_parquet(seed)
        yield "damaged Arrow", damaged_arrow(seed)
        yield "random bytes", random_bytes(seed)
        seed += 1


def _rows(notes: list[str]) -> pa.Table:
    short = ["1"] * len(notes)
    return pa.table([short, notes, short], names=[*COLUMNS])


def _parquet(table: pa.Table, **how: object) -> bytes:
    sink = io.BytesIO()
    parquet.write_table(table, sink, compression="zstd", **how)
    return sink.getvalue()


def _arrow(table: pa.Table, compression: str | None, times: int = 1) -> bytes:
    sink = io.BytesIO()
    options = ipc.IpcWriteOptions(compression=compression)
    with ipc.new_stream(sink, table.schema, options=options) as writer:
        for _ in range(times):
            writer.write_table(table)
    return sink.getvalue()
