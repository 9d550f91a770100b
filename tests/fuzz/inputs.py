"""Chunks that are damaged or made at random, each from its number and a seed."""

from __future__ import annotations

import bz2
import gzip
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

import pyarrow as pa
from pyarrow import ipc, parquet

SCHEMA = "item_id bigint, item_name string, price decimal(10,2), sold_at timestamp"
"""Of the source that they are delivered to."""
COLUMNS = "item_id,item_name,price,sold_at"
LETTERS = b'0123456789abc.,,,"" \n\n\r-+:TZx\x00\xff\xc3\xa9'
EXTREMES = (0, 1, 0x7F, 0x80, 0xFF)
HEAD, FOOT = 64, 400
"""Bytes at the beginning and the end of a file, where readers believe most."""
MOST_TIMES = 200

_OTHER_TYPES = (
    (pa.int8(), pa.float64(), pa.string(), pa.list_(pa.int64()), pa.uint32()),
    (pa.large_string(), pa.binary(), pa.string_view(), pa.list_(pa.string())),
)
"""Of the first column, and of the second."""
_CODECS = ("none", "snappy", "gzip", "zstd", "lz4", "brotli")
_ENCODINGS: tuple[dict[str, Any], ...] = (
    {},
    {"use_dictionary": False},
    {"use_dictionary": False, "column_encoding": {"item_name": "DELTA_BYTE_ARRAY"}},
    {"use_dictionary": False, "column_encoding": {"item_name": "DELTA_LENGTH_BYTE_ARRAY"}},
    {"use_dictionary": False, "column_encoding": {"item_id": "DELTA_BINARY_PACKED"}},
    {"data_page_version": "2.0"},
    {"row_group_size": 7},
    {"store_schema": False},
)


@dataclass(frozen=True, slots=True)
class Input:
    """The bytes of a file, what its name ends with, and how it was made."""

    content: bytes
    ending: str
    made: str


def input_of(seed: int, number: int) -> Input:
    """Always the same for the same numbers."""
    random = Random(f"{seed}/{number}")
    kind, make = random.choice(_KINDS)
    content, ending = make(random)
    return Input(content, ending, kind)


# ── good files ──


def _table(random: Random, rows: int = 20) -> pa.Table:
    ids = [random.choice((None, 0, -1, random.getrandbits(40))) for _ in range(rows)]
    names = [random.choice((None, "", "tea", "é" * random.randrange(40))) for _ in range(rows)]
    prices = pa.array([random.randrange(10**6) for _ in range(rows)], pa.int64())
    moments = pa.array([random.getrandbits(45) for _ in range(rows)], pa.timestamp("us", "UTC"))
    columns = [pa.array(ids, pa.int64()), pa.array(names), prices.cast(pa.decimal128(22, 2))]
    return pa.table([*columns, moments], names=COLUMNS.split(","))


def _strange(random: Random, table: pa.Table) -> pa.Table:
    """The same rows in other types, some of which fit and some of which do not."""
    place = random.randrange(2)
    name = table.column_names[place]
    column = table.column(place)
    kind = random.choice(_OTHER_TYPES[place])
    if pa.types.is_list(kind):
        made = pa.array([[it] for it in column.to_pylist()], kind)
    else:
        made = column.cast(kind, safe=False)
    if random.random() < 0.5:
        made = made.dictionary_encode() if not pa.types.is_nested(made.type) else made
    return table.set_column(place, name, made)


@cache
def _parquet_files() -> list[bytes]:
    random = Random(1)
    ways = [{"compression": codec, **encoding} for codec in _CODECS for encoding in _ENCODINGS]
    made = [_parquet(_table(random), **way) for way in ways]
    for _ in range(24):
        made.extend(_tried(lambda: _parquet(_strange(random, _table(random)))))
    return made


def _parquet(table: pa.Table, **how: Any) -> bytes:
    file = io.BytesIO()
    parquet.write_table(table, file, **how)
    return file.getvalue()


@cache
def _arrow_files() -> list[bytes]:
    random, made = Random(2), []
    for codec in (None, "lz4", "zstd"):
        for new in (ipc.new_file, ipc.new_stream):
            made.append(_arrow(_table(random), new, codec))
            for _ in range(8):
                strange = _strange(random, _table(random))
                made.extend(_tried(lambda: _arrow(strange, new, codec)))  # noqa: B023
    return made


def _arrow(table: pa.Table, new: Any, codec: str | None) -> bytes:
    file = io.BytesIO()
    with new(file, table.schema, options=ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(table, max_chunksize=7)
    return file.getvalue()


def _tried(make: Callable[[], bytes]) -> Iterator[bytes]:
    try:
        yield make()
    except (pa.ArrowException, OverflowError):
        return


@cache
def _text_files() -> list[bytes]:
    random, made = Random(3), []
    for _ in range(20):
        rows = _table(random).to_pylist()
        lines = [",".join("" if it is None else str(it) for it in row.values()) for row in rows]
        made.append("\n".join([COLUMNS, *lines, ""]).encode())
    return made


# ── damage ──


def damaged(random: Random, content: bytes) -> bytes:
    """The content after one or more accidents, most often few."""
    bytes_ = bytearray(content)
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        random.choice(_ACCIDENTS)(random, bytes_)
    return bytes(bytes_)


def _key(random: Random, content: bytearray) -> int:
    length = len(content)
    low, high = random.choice(((0, HEAD), (max(0, length - FOOT), length), (0, length)))
    return random.randrange(low, max(low + 1, min(high, length)))


def _flip(random: Random, content: bytearray) -> None:
    if content:
        content[_key(random, content)] ^= 1 << random.randrange(8)


def _extreme(random: Random, content: bytearray) -> None:
    if content:
        content[_key(random, content)] = random.choice(EXTREMES)


def _number(random: Random, content: bytearray) -> None:
    """Four or eight bytes that a reader may take for a length."""
    if content:
        at, size = _key(random, content), random.choice((4, 8))
        value = random.choice((0, -1, 1 << 30, (1 << 31) - 1, random.getrandbits(31)))
        content[at : at + size] = value.to_bytes(8, "little", signed=True)[:size]


def _checkpoint(random: Random, content: bytearray) -> None:
    del content[_key(random, content) :]


def _remove(random: Random, content: bytearray) -> None:
    at = _key(random, content)
    del content[at : at + random.choice((1, 4, 16))]


def _repeat(random: Random, content: bytearray) -> None:
    at = _key(random, content)
    content[at:at] = content[at : at + 16] * random.randrange(1, 4)


_ACCIDENTS = (_flip, _flip, _flip, _flip, _extreme, _number, _checkpoint, _remove, _repeat)


# ── kinds ──


def _of_parquet(random: Random) -> tuple[bytes, str]:
    return damaged(random, random.choice(_parquet_files())), ".parquet"


def _of_arrow(random: Random) -> tuple[bytes, str]:
    return damaged(random, random.choice(_arrow_files())), ".arrow"


def _of_text(random: Random) -> tuple[bytes, str]:
    return damaged(random, random.choice(_text_files())), ".csv"


def _generated_text(random: Random) -> tuple[bytes, str]:
    header = COLUMNS.encode() + b"\n" if random.random() < 0.9 else b""
    return header + bytes(random.choices(LETTERS, k=random.randrange(200))), ".csv"


def _repeated_text(random: Random) -> tuple[bytes, str]:
    """A little text again and again, in a compressed file."""
    part = bytes(random.choices(LETTERS, k=random.randrange(1, 2000)))
    content = COLUMNS.encode() + b"\n" + part * random.randrange(1, MOST_TIMES)
    if random.random() < 0.5:
        return gzip.compress(content, 1), ".csv.gz"
    return bz2.compress(content, 1), ".csv.bz2"


def _of_gzip(random: Random) -> tuple[bytes, str]:
    text = random.choice(_text_files())
    if random.random() < 0.5:
        return gzip.compress(damaged(random, text), 1), ".csv.gz"
    return damaged(random, gzip.compress(text, 1)), ".csv.gz"


def _of_bzip2(random: Random) -> tuple[bytes, str]:
    text = random.choice(_text_files())
    if random.random() < 0.5:
        return bz2.compress(damaged(random, text), 1), ".csv.bz2"
    return damaged(random, bz2.compress(text, 1)), ".csv.bz2"


def _good(random: Random) -> tuple[bytes, str]:
    files = ((_parquet_files, ".parquet"), (_arrow_files, ".arrow"), (_text_files, ".csv"))
    made, ending = random.choice(files)
    return random.choice(made()), ending


def _named_wrongly(random: Random) -> tuple[bytes, str]:
    content, _ = _good(random)
    return content, random.choice((".parquet", ".arrow", ".csv", ".csv.gz", ".csv.bz2", ".xls"))


def _noise(random: Random) -> tuple[bytes, str]:
    content, ending = _good(random)
    noise = random.randbytes(random.randrange(400))
    return content[:8] + noise + content[-8:], ending


_KINDS: tuple[tuple[str, Callable[[Random], tuple[bytes, str]]], ...] = (
    ("damaged Parquet", _of_parquet),
    ("damaged Parquet", _of_parquet),
    ("damaged Parquet", _of_parquet),
    ("damaged Parquet", _of_parquet),
    ("damaged Arrow", _of_arrow),
    ("damaged Arrow", _of_arrow),
    ("damaged Arrow", _of_arrow),
    ("damaged CSV", _of_text),
    ("random CSV", _generated_text),
    ("repeated text", _repeated_text),
    ("damaged gzip", _of_gzip),
    ("damaged bzip2", _of_bzip2),
    ("good", _good),
    ("named wrongly", _named_wrongly),
    ("noise", _noise),
)
