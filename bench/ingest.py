"""Checking chunks: in a process of a pool, against the same function called in this process.

The small ones show what handing a chunk over costs, the large ones what the limits cost. All
copies are written to the disk and synced, as a server does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from bench._measure import Case, main
from tidegate.settings import Settings
from tidegate.spark import CheckerPool
from tidegate.spark.checker.protocol import Check, Copied, DeclaredField, NeedsSpark
from tidegate.spark.ingest.ingest import check_chunk

COLUMNS = (
    DeclaredField("id", "bigint"),
    DeclaredField("amount", "double"),
    DeclaredField("name", "string"),
)
SMALL_ROWS, LARGE_ROWS = 40, 2_000_000
AGAINST = "in this process"
_numbers = count()

Checking = Callable[[Check], Copied | NeedsSpark]


def rows(number: int) -> pa.Table:
    made = np.random.default_rng(number)
    ids = made.integers(0, 1 << 40, number)
    names = np.char.add("item ", (ids % 1000).astype(str))
    return pa.table({"id": ids, "amount": made.random(number).round(4), "name": names})


def checked(check: Checking, file: Path, times: int) -> None:
    """Check a file so many times; each copy is removed again."""
    for _ in range(times):
        name = f"chunks/{next(_numbers)}"
        taken = check(Check("sales", COLUMNS, str(file), str(file.parent), name))
        assert isinstance(taken, Copied)
        for each in taken.files:
            (file.parent / each).unlink()


def case(title: str, file: Path, number: int, pool: CheckerPool) -> Case:
    ours, peer = partial(checked, pool.check, file), partial(checked, check_chunk, file)
    return Case(title, "chunks", number, ours, peer, AGAINST, effort=1)


@contextmanager
def cases() -> Iterator[list[Case]]:
    """Files in a folder of their own, and a pool."""
    with TemporaryDirectory(prefix="tidegate-") as folder, CheckerPool(Settings()) as pool:
        small, large, stored = (Path(folder, it) for it in ("small.csv", "large.csv", "1.parquet"))
        csv.write_csv(rows(SMALL_ROWS), small)
        csv.write_csv(rows(LARGE_ROWS), large)
        parquet.write_table(rows(LARGE_ROWS), stored)
        yield [
            case(f"CSV, {small.stat().st_size:,} bytes", small, 300, pool),
            case(f"CSV, {large.stat().st_size >> 20} MiB", large, 1, pool),
            case(f"Parquet, {stored.stat().st_size >> 20} MiB", stored, 1, pool),
        ]


if __name__ == "__main__":
    with cases() as made:
        main(made)
