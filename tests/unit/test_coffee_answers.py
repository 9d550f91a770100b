"""The independent answers, on data small enough to be worked out by hand."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet
import pytest

from tests.coffee_answers import COLUMNS, Row, answers, csv_text

HEADERS = {
    "transactions": "transaction_id,store_id,payment_method_id,voucher_id,user_id,original_amount,"
    "discount_applied,final_amount,created_at",
    "transaction_items": "transaction_id,item_id,quantity,unit_price,subtotal,created_at",
    "menu_items": "item_id,item_name,category,price,is_seasonal,available_from,available_to",
    "stores": "store_id,store_name,street,postal_code,city,state,latitude,longitude",
    "users": "user_id,gender,birthdate,registered_at",
}
MENU = ["1,espresso,coffee,2.50,false,,", "2.0,latte,coffee,3.50,false,,", "3,mocha,coffee,,true,,"]
STORES = ['1,"corner, east",,,,,,', "2,station,,,,,,"]
USERS = [f"{id},,{1990 + id}-05-01,2023-01-01 00:00:00" for id in range(1, 6)]


def deliver(folder: Path, source: str, rows: list[str], file: str = "0.csv") -> None:
    (folder / source).mkdir(exist_ok=True)
    (folder / source / file).write_text("\n".join([HEADERS[source], *rows]) + "\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The three small sources, and nothing sold."""
    deliver(tmp_path, "menu_items", MENU)
    deliver(tmp_path, "stores", STORES)
    deliver(tmp_path, "users", USERS)
    deliver(tmp_path, "transactions", [])
    deliver(tmp_path, "transaction_items", [])
    return tmp_path


def payment(id: str, amount: str, at: str, store: str = "1", user: str = "") -> str:
    return f"{id},{store},1,,{user},{amount},0.00,{amount},{at}"


def sale(item: str, quantity: str, subtotal: str, at: str = "2024-03-01 09:00:00") -> str:
    return f"t,{item},{quantity},,{subtotal},{at}"


def answer(folder: Path, sink: str) -> list[Row]:
    return answers(folder)[sink]


def test_q1_has_the_first_and_last_second_of_the_day_and_exactly_75(folder: Path) -> None:
    inside = ["2024-01-01 06:00:00", "2025-12-31 23:00:00"]
    outside = [
        "2024-01-01 05:59:59",
        "2024-01-01 23:00:01",
        "2023-12-31 12:00:00",
        "2026-01-01 12:00:00",
    ]
    rows = [payment(f"in{n}", "75.00", at) for n, at in enumerate(inside)]
    rows += [payment(f"out{n}", "75.00", at) for n, at in enumerate(outside)]
    rows += [payment("small", "74.99", inside[0]), payment("unknown", "", inside[0])]
    deliver(folder, "transactions", [*rows, payment("no time", "80.00", "")])

    assert answer(folder, "q1") == [("in0", Decimal("75.00")), ("in1", Decimal("75.00"))]


def test_q2_gives_a_tie_to_the_lower_item_in_number_and_not_in_text(folder: Path) -> None:
    deliver(folder, "menu_items", ["10,ristretto,,,,,", "9,cortado,,,,,"])
    deliver(folder, "transaction_items", [sale("10", "2", "5.00"), sale("9.0", "2.0", "5.00")])

    assert answer(folder, "q2_best_selling") == [("2024-03", "cortado", 2)]
    assert answer(folder, "q2_most_profit") == [("2024-03", "cortado", Decimal("5.00"))]


def test_q2_counts_every_repeated_row(folder: Path) -> None:
    deliver(folder, "transaction_items", [sale("1", "2", "0.10")] * 3 + [sale("2", "5", "0.20")])

    assert answer(folder, "q2_best_selling") == [("2024-03", "espresso", 6)]
    assert answer(folder, "q2_most_profit") == [("2024-03", "espresso", Decimal("0.30"))]


def test_q2_takes_an_empty_number_as_nothing_and_never_names_an_unknown_item(folder: Path) -> None:
    sales = [sale("1", "", "1.00"), sale("1", "1", ""), sale("2", "", ""), sale("", "9", "9.00")]
    deliver(folder, "transaction_items", sales)

    assert answer(folder, "q2_best_selling") == [("2024-03", "espresso", 1)]
    assert answer(folder, "q2_most_profit") == [("2024-03", "espresso", Decimal("1.00"))]


def test_q2_has_one_row_per_month_that_sold_something_in_both_years(folder: Path) -> None:
    months = ["2023-12", "2024-01", "2024-12", "2025-12", "2026-01"]
    sales = [sale("3", "1", "1.00", f"{month}-31 23:59:59") for month in months]
    deliver(folder, "transaction_items", sales)

    found = [month for month, _, _ in answer(folder, "q2_best_selling")]
    assert found == ["2024-01", "2024-12", "2025-12"]


def test_q3_adds_up_exactly_per_half_year_and_store(folder: Path) -> None:
    june, july = "2024-06-30 23:00:00", "2024-07-01 06:00:00"
    rows = [payment("a", "0.10", june)] * 3 + [payment("b", "9999999999.99", july, store="2.0")] * 2
    rows += [payment("night", "1.00", "2024-06-30 23:00:01"), payment("lost", "1.00", june, "")]
    deliver(folder, "transactions", rows)

    assert answer(folder, "q3") == [
        ("2024-H1", "corner, east", Decimal("0.30")),
        ("2024-H2", "station", Decimal("19999999999.98")),
    ]


def test_q4_takes_three_per_store_and_of_equals_the_higher_user(folder: Path) -> None:
    visits = ["1", "1.0", "2", "3.0", "4", "5", "", "", ""]
    rows = [payment("v", "1.00", "2024-05-05 03:00:00", user=user) for user in visits]
    rows += [payment("v", "1.00", "2023-05-05 03:00:00", user="2")] * 5
    deliver(folder, "transactions", rows)

    born = [date(1990 + user, 5, 1) for user in (1, 4, 5)]
    assert answer(folder, "q4") == [("corner, east", birth) for birth in born]


def test_several_files_may_order_their_columns_differently(folder: Path) -> None:
    deliver(folder, "users", ["5,,1999-09-09,"], file="0.csv")
    (folder / "users" / "1.csv").write_text("birthdate,user_id\n2001-01-01,6.0\n")
    visits = [payment("v", "1.00", "2024-05-05 03:00:00", user=user) for user in ("5", "6")]
    deliver(folder, "transactions", visits)

    assert answer(folder, "q4") == [
        ("corner, east", date(1999, 9, 9)),
        ("corner, east", date(2001, 1, 1)),
    ]


def test_sources_that_are_empty_or_absent_give_empty_answers(folder: Path, tmp_path: Path) -> None:
    nothing: dict[str, list[Row]] = {sink: [] for sink in COLUMNS}

    assert answers(folder) == nothing
    assert answers(tmp_path / "nowhere") == nothing


def test_parquet_gives_the_same_answers_as_csv(folder: Path, tmp_path: Path) -> None:
    deliver(folder, "transaction_items", [sale("1", "2", "7.10"), sale("2", "1", "7.20")])
    deliver(folder, "transactions", [payment("a", "80.50", "2025-02-03 12:00:00", user="3.0")])
    for source in HEADERS:
        (tmp_path / "parquet" / source).mkdir(parents=True)
        table = pyarrow.csv.read_csv(folder / source / "0.csv")
        pyarrow.parquet.write_table(table, tmp_path / "parquet" / source / "0.parquet")

    assert answers(tmp_path / "parquet") == answers(folder)
    assert all(answers(folder).values())


def test_a_file_is_ordered_and_plain_and_tells_null_from_an_empty_name() -> None:
    rows: list[Row] = [
        ("2024-H1", "z", Decimal("1E+2")),
        ("2024-H1", 'the "old" one, east', Decimal("0.00")),
        ("2024-H1", "", Decimal("2.50")),
        ("2024-H1", None, None),
    ]

    assert csv_text("q3", rows) == (
        "year_half_created_at,store_name,tpv\n"
        "2024-H1,,\n"
        '2024-H1,"",2.50\n'
        '2024-H1,"the ""old"" one, east",0.00\n'
        "2024-H1,z,100\n"
    )
