"""Generator of coffee data: seeded, of any size, and as irregular as real exports.

    write(folder, Size(transactions=100_000), seed=7)

writes `folder/<source>/<n>.csv`. The same seed and size give the same bytes. The data has the
irregularities of real exports: ids written as floats, empty fields, customers without an account,
years outside the queries, a month without sales, repeated rows, skewed items and stores, sales
exactly at opening and closing time, customers with equal counts, and months with two best items.

`format="parquet"` gives the same rows in typed columns, as `folder/<source>/<n>.parquet`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet

Format: TypeAlias = Literal["csv", "parquet"]
Array: TypeAlias = npt.NDArray[Any]
Numbers: TypeAlias = npt.NDArray[np.int64]
Generator: TypeAlias = np.random.Generator

FIRST_SECOND = np.datetime64("2023-07-01T00:00:00", "s")
SECONDS = int((np.datetime64("2026-07-01T00:00:00", "s") - FIRST_SECOND).astype(np.int64))
EMPTY_MONTH = np.datetime64("2024-09", "M")
MONTHS_OF_TIES = (3, 10)
"""Months of every year in which neighbouring menu items have equal sales."""
EDGES_OF_A_DAY = np.array([6 * 3600 - 1, 6 * 3600, 23 * 3600, 23 * 3600 + 1])
LARGE_AMOUNT = 75_00
ITEMS_PER_TRANSACTION = 2
ROWS_AT_ONCE = 500_000
"""Even, because rows come in pairs that are never split."""


@dataclass(frozen=True, slots=True)
class Size:
    """Row counts; there are twice as many transaction items as transactions."""

    transactions: int
    files: int = 4
    """Files per large source; each becomes a chunk."""
    stores: int = 10
    menu_items: int = 8

    @property
    def users(self) -> int:
        """One customer for every ten transactions, and a few who never bought anything."""
        return self.transactions // 10 + 5


Make: TypeAlias = Callable[[Size, range, Generator], pa.Table]


def write(folder: Path, size: Size, seed: int, format: Format = "csv") -> None:  # noqa: A002
    """Write all five sources below `folder`."""
    rng = np.random.default_rng(seed)
    items = size.transactions * ITEMS_PER_TRANSACTION
    sources: dict[str, tuple[Make, int, int]] = {
        "menu_items": (_menu_items, size.menu_items, 1),
        "stores": (_stores, size.stores, 1),
        "users": (_users, size.users, 1),
        "transactions": (_transactions, size.transactions, size.files),
        "transaction_items": (_transaction_items, items, size.files),
    }
    for source, (make, rows, files) in sources.items():
        (folder / source).mkdir(parents=True, exist_ok=True)
        for number, numbers in enumerate(_split(rows, files)):
            pieces = (make(size, piece, rng) for piece in _pieces(numbers))
            _WRITE[format](folder / source / f"{number}.{format}", pieces)


def _split(rows: int, files: int) -> Iterator[range]:
    """The numbers of the rows of each file, all but the last an even number of them."""
    pairs = (rows + 1) // 2
    bounds = [pairs * file // files * 2 for file in range(files)]
    return map(range, bounds, [*bounds[1:], rows])


def _pieces(numbers: range) -> Iterator[range]:
    """Parts of a file, at least one, so that memory does not grow with the data."""
    for start in range(0, max(len(numbers), 1), ROWS_AT_ONCE):
        yield numbers[start : start + ROWS_AT_ONCE]


# --- Sources ---------------------------------------------------------------------------------


def _transactions(size: Size, numbers: range, rng: Generator) -> pa.Table:
    rows = len(numbers)
    original = np.where(_happens(0.005, rows, rng), LARGE_AMOUNT, rng.integers(300, 12_000, rows))
    discount = np.where(_happens(0.1, rows, rng), original // 10, 0)
    return pa.table(
        {
            "transaction_id": _transaction_ids(_numbers(numbers)),
            "store_id": _same_in_pairs(_skewed(size.stores, rows, rng)) + 1,
            "payment_method_id": rng.integers(1, 6, rows),
            "voucher_id": _or_empty(rng.integers(1, 500, rows), _happens(0.9, rows, rng)),
            "user_id": _friends(size, rows, rng),
            "original_amount": _cents(original),
            "discount_applied": _cents(discount),
            "final_amount": _cents(original - discount),
            "created_at": _same_in_pairs(_moments(rows, rng)),
        }
    )


def _friends(size: Size, rows: int, rng: Generator) -> pa.Array:
    """Customers in pairs, so that both are equally frequent in every store."""
    first = _same_in_pairs(_skewed(size.users, rows, rng))
    users = np.where(_second_of_pair(rows), _neighbour(first, size.users), first)
    return _or_empty(users + 1, _same_in_pairs(_happens(0.3, rows, rng)))


def _transaction_items(size: Size, numbers: range, rng: Generator) -> pa.Table:
    rows = len(numbers)
    created_at = _same_in_pairs(_moments(rows, rng))
    in_tie = np.isin(created_at.astype("datetime64[M]").astype(int) % 12 + 1, MONTHS_OF_TIES)
    repeated = in_tie | _same_in_pairs(_happens(0.02, rows, rng))
    item, quantity, price = (
        np.where(repeated, _same_in_pairs(column), column)
        for column in (
            _skewed(size.menu_items, rows, rng),
            rng.integers(1, 4, rows),
            rng.integers(250, 1_200, rows),
        )
    )
    item = np.where(in_tie & _second_of_pair(rows), _neighbour(item, size.menu_items), item)
    return pa.table(
        {
            "transaction_id": _transaction_ids(_numbers(numbers) // ITEMS_PER_TRANSACTION),
            "item_id": item + 1,
            "quantity": quantity,
            "unit_price": _cents(price),
            "subtotal": _cents(quantity * price),
            "created_at": created_at,
        }
    )


def _menu_items(_: Size, numbers: range, rng: Generator) -> pa.Table:
    ids = _numbers(numbers) + 1
    return pa.table(
        {
            "item_id": ids,
            "item_name": [f"coffee no. {id}" for id in ids],
            "category": rng.choice(["coffee", "tea", "cake"], len(ids)),
            "price": _cents(rng.integers(250, 1_200, len(ids))),
            "is_seasonal": _happens(0.2, len(ids), rng),
            "available_from": pa.nulls(len(ids), pa.date32()),
            "available_to": pa.nulls(len(ids), pa.date32()),
        }
    )


def _stores(_: Size, numbers: range, rng: Generator) -> pa.Table:
    ids = _numbers(numbers) + 1
    return pa.table(
        {
            "store_id": ids,
            "store_name": [f"corner, no. {id}" for id in ids],
            "street": [f"{id} bean street" for id in ids],
            "postal_code": [f"{id:05d}" for id in ids],
            "city": rng.choice(["north", "south"], len(ids)),
            "state": pa.nulls(len(ids), pa.string()),
            "latitude": np.round(rng.uniform(-60, 60, len(ids)), 5),
            "longitude": np.round(rng.uniform(-180, 180, len(ids)), 5),
        }
    )


def _users(_: Size, numbers: range, rng: Generator) -> pa.Table:
    ids = _numbers(numbers) + 1
    return pa.table(
        {
            "user_id": ids,
            "gender": rng.choice(["female", "male", "other"], len(ids)),
            "birthdate": np.datetime64("1950-01-01") + rng.integers(0, 20_000, len(ids)),
            "registered_at": _moments(len(ids), rng),
        }
    )


# --- Columns ---------------------------------------------------------------------------------


def _numbers(numbers: range) -> Numbers:
    return np.arange(numbers.start, numbers.stop)


def _transaction_ids(numbers: Numbers) -> pa.Array:
    digits = pa.compute.utf8_lpad(pa.array(numbers).cast(pa.string()), 12, "0")
    return pa.compute.binary_join_element_wise("t-", digits, "")


def _happens(share: float, rows: int, rng: Generator) -> npt.NDArray[np.bool_]:
    return rng.random(rows) < share


def _skewed(choices: int, rows: int, rng: Generator) -> Numbers:
    """Numbers below `choices`, skewed towards low ones."""
    return np.minimum((rng.random(rows) ** 2 * choices).astype(np.int64), choices - 1)


def _moments(rows: int, rng: Generator) -> Array:
    """Times within three years, to the second, with one empty month."""
    moments = FIRST_SECOND + rng.integers(0, SECONDS, rows)
    days = moments.astype("datetime64[D]").astype("datetime64[s]")
    moments = np.where(_happens(0.01, rows, rng), days + rng.choice(EDGES_OF_A_DAY, rows), moments)
    in_empty_month = moments.astype("datetime64[M]") == EMPTY_MONTH
    return np.where(in_empty_month, moments + np.timedelta64(31 * 86_400, "s"), moments)


def _or_empty(numbers: Numbers, empty: npt.NDArray[np.bool_]) -> pa.Array:
    """Some fields are empty; exporters then write the others as floats."""
    return pa.array(numbers.astype(np.float64), mask=empty)


def _cents(cents: Numbers) -> pa.Array:
    """Amounts of money, exact."""
    whole = pa.array(cents).cast(pa.decimal128(19, 0))
    return pa.compute.multiply(whole, pa.scalar(Decimal("0.01"))).cast(pa.decimal128(12, 2))


def _same_in_pairs(column: Array) -> Array:
    """Both rows of a pair get the value of the first."""
    return np.repeat(column[::2], 2)[: len(column)]


def _second_of_pair(rows: int) -> npt.NDArray[np.bool_]:
    return (np.arange(rows) % 2).astype(np.bool_)


def _neighbour(numbers: Numbers, choices: int) -> Numbers:
    """0 and 1 are neighbours, 2 and 3, and so on; the last may have none but itself."""
    other = numbers ^ 1
    return np.where(other < choices, other, numbers)


# --- Files -----------------------------------------------------------------------------------


def _write_csv(path: Path, pieces: Iterator[pa.Table]) -> None:
    texts = map(_with_float_ids, pieces)
    first = next(texts)
    options = pa.csv.WriteOptions(quoting_style="needed")
    with pa.csv.CSVWriter(path, first.schema, write_options=options) as writer:
        for piece in chain([first], texts):
            writer.write_table(piece)


def _with_float_ids(piece: pa.Table) -> pa.Table:
    """`12.0` where Arrow would write a float that is a whole number as `12`."""
    for at, field in enumerate(piece.schema):
        if field.name.endswith("_id") and pa.types.is_floating(field.type):
            digits = piece.column(at).cast(pa.int64()).cast(pa.string())
            floats = pa.compute.binary_join_element_wise(digits, "0", ".")
            piece = piece.set_column(at, field.name, floats)
    return piece


def _write_parquet(path: Path, pieces: Iterator[pa.Table]) -> None:
    first = next(pieces)
    # Microseconds are what Spark keeps as well.
    with pa.parquet.ParquetWriter(path, first.schema, coerce_timestamps="us") as writer:
        for piece in chain([first], pieces):
            writer.write_table(piece)


_WRITE: dict[Format, Callable[[Path, Iterator[pa.Table]], None]] = {
    "csv": _write_csv,
    "parquet": _write_parquet,
}


def write_small(folder: Path, seed: int) -> None:
    """A few thousand transactions: enough for every query to have results."""
    write(folder, Size(6_000, files=3), seed)
