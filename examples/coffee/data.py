"""Coffee data to try things on: seeded, as large as asked for, and as untidy as the real thing.

    write(folder, Size(transactions=100_000), seed=7)

puts `folder/<source>/<n>.csv` there. The same seed and size give the same bytes. What real
exports do to a pipeline is in it on purpose: ids written as floats, empty fields, customers
without an account, years that nobody asked for, a month without sales, a few items and stores
that sell most, and customers who came equally often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

Numbers = npt.NDArray[np.int64]
Generator = np.random.Generator

FIRST_SECOND = np.datetime64("2023-07-01T00:00:00", "s")
SECONDS = int((np.datetime64("2026-07-01T00:00:00", "s") - FIRST_SECOND).astype(np.int64))
EMPTY_MONTH = np.datetime64("2024-09", "M")
ITEMS_PER_TRANSACTION = 2
ROWS_AT_ONCE = 500_000


@dataclass(frozen=True, slots=True)
class Size:
    """How much of everything; items come to twice the transactions."""

    transactions: int
    files: int = 4
    """Files per large source; each becomes a chunk."""
    stores: int = 10
    menu_items: int = 8

    @property
    def users(self) -> int:
        """One customer for every ten transactions, and a few who never bought anything."""
        return self.transactions // 10 + 5


def write(folder: Path, size: Size, seed: int) -> None:
    """Write all five sources below `folder`."""
    rng = np.random.default_rng(seed)
    _write_table(folder / "menu_items" / "0.csv", _menu_items(size, rng))
    _write_table(folder / "stores" / "0.csv", _stores(size, rng))
    _write_table(folder / "users" / "0.csv", _users(size, rng))
    _write_large(folder / "transactions", size, size.transactions, rng, _transactions)
    items = size.transactions * ITEMS_PER_TRANSACTION
    _write_large(folder / "transaction_items", size, items, rng, _transaction_items)


def _write_large(
    folder: Path,
    size: Size,
    rows: int,
    rng: Generator,
    make: Callable[[Size, Numbers, Generator], pa.Table],
) -> None:
    """Several files, each in pieces, so that memory does not grow with the data."""
    for number, numbers in enumerate(np.array_split(np.arange(rows), size.files)):
        pieces = (make(size, piece, rng) for piece in _pieces(numbers))
        _write_pieces(folder / f"{number}.csv", pieces)


def _pieces(numbers: Numbers) -> Iterator[Numbers]:
    if len(numbers) == 0:
        yield numbers
    for start in range(0, len(numbers), ROWS_AT_ONCE):
        yield numbers[start : start + ROWS_AT_ONCE]


def _write_table(path: Path, table: pa.Table) -> None:
    _write_pieces(path, iter([table]))


def _write_pieces(path: Path, pieces: Iterator[pa.Table]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    first = next(pieces)
    options = pa.csv.WriteOptions(quoting_style="needed")
    with pa.csv.CSVWriter(path, first.schema, write_options=options) as writer:
        writer.write_table(first)
        for piece in pieces:
            writer.write_table(piece)


def _transactions(size: Size, numbers: Numbers, rng: Generator) -> pa.Table:
    rows = len(numbers)
    original = rng.integers(300, 12_000, rows)
    discount = np.where(_happens(0.1, rows, rng), original // 10, 0)
    return pa.table(
        {
            "transaction_id": _transaction_ids(numbers),
            "store_id": _skewed(size.stores, rows, rng) + 1,
            "payment_method_id": rng.integers(1, 6, rows),
            "voucher_id": _sometimes_empty(rng.integers(1, 500, rows), 0.9, rng),
            "user_id": _sometimes_empty(_skewed(size.users, rows, rng) + 1, 0.3, rng),
            "original_amount": _cents(original),
            "discount_applied": _cents(discount),
            "final_amount": _cents(original - discount),
            "created_at": _moments(rows, rng),
        }
    )


def _transaction_items(size: Size, numbers: Numbers, rng: Generator) -> pa.Table:
    rows = len(numbers)
    quantity = rng.integers(1, 4, rows)
    price = rng.integers(250, 1_200, rows)
    return pa.table(
        {
            "transaction_id": _transaction_ids(numbers // ITEMS_PER_TRANSACTION),
            "item_id": _skewed(size.menu_items, rows, rng) + 1,
            "quantity": quantity,
            "unit_price": _cents(price),
            "subtotal": _cents(quantity * price),
            "created_at": _moments(rows, rng),
        }
    )


def _menu_items(size: Size, rng: Generator) -> pa.Table:
    ids = np.arange(1, size.menu_items + 1)
    return pa.table(
        {
            "item_id": ids,
            "item_name": [f"coffee no. {id}" for id in ids],
            "category": rng.choice(["coffee", "tea", "cake"], size.menu_items),
            "price": _cents(rng.integers(250, 1_200, size.menu_items)),
            "is_seasonal": _happens(0.2, size.menu_items, rng),
            "available_from": pa.nulls(size.menu_items, pa.string()),
            "available_to": pa.nulls(size.menu_items, pa.string()),
        }
    )


def _stores(size: Size, rng: Generator) -> pa.Table:
    ids = np.arange(1, size.stores + 1)
    return pa.table(
        {
            "store_id": ids,
            "store_name": [f"corner, no. {id}" for id in ids],
            "street": [f"{id} bean street" for id in ids],
            "postal_code": [f"{id:05d}" for id in ids],
            "city": rng.choice(["north", "south"], size.stores),
            "state": pa.nulls(size.stores, pa.string()),
            "latitude": np.round(rng.uniform(-60, 60, size.stores), 5),
            "longitude": np.round(rng.uniform(-180, 180, size.stores), 5),
        }
    )


def _users(size: Size, rng: Generator) -> pa.Table:
    births = np.datetime64("1950-01-01") + rng.integers(0, 20_000, size.users)
    return pa.table(
        {
            "user_id": np.arange(1, size.users + 1),
            "gender": rng.choice(["female", "male", "other"], size.users),
            "birthdate": pa.array(births),
            "registered_at": _moments(size.users, rng),
        }
    )


def _happens(share: float, rows: int, rng: Generator) -> npt.NDArray[np.bool_]:
    return rng.random(rows) < share


def _skewed(choices: int, rows: int, rng: Generator) -> Numbers:
    """Numbers below `choices`, the low ones far more often."""
    return np.minimum((rng.random(rows) ** 2 * choices).astype(np.int64), choices - 1)


def _moments(rows: int, rng: Generator) -> pa.Array:
    """Moments of three years to the second, with one month that nothing ever happened in."""
    moments = FIRST_SECOND + rng.integers(0, SECONDS, rows)
    in_empty_month = moments.astype("datetime64[M]") == EMPTY_MONTH
    moments = np.where(in_empty_month, moments + np.timedelta64(31 * 86_400, "s"), moments)
    return pa.array(np.char.replace(moments.astype(str), "T", " "))


def _sometimes_empty(numbers: Numbers, share: float, rng: Generator) -> pa.Array:
    """Some fields are empty, which makes exporters write the others as floats."""
    present = [f"{number}.0" for number in numbers]
    return pa.array(present, mask=_happens(share, len(numbers), rng))


def _transaction_ids(numbers: Numbers) -> list[str]:
    return [f"t-{number:012d}" for number in numbers]


def _cents(cents: Numbers) -> list[str]:
    return [f"{amount // 100}.{amount % 100:02d}" for amount in cents.tolist()]
