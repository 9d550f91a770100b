"""The generated coffee data has in it, at any size, what makes real data hard."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from tests.coffee_answers import answers
from tidegate_examples.coffee.data import Format, Size, write

SIZE = Size(3_001, files=3)
SOURCES = {"menu_items": 1, "stores": 1, "users": 1, "transactions": 3, "transaction_items": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("coffee")
    write(folder, SIZE, seed=5)
    return folder


def one(folder: Path, source: str, question: str) -> object:
    """The single value that SQL gives for a source; `rows` is its table."""
    files = f"read_csv('{folder / source}/*.csv')"
    with duckdb.connect() as database:
        ((found,),) = database.execute(f"WITH rows AS (FROM {files}) {question}").fetchall()
    return found


def every_file(folder: Path) -> dict[Path, bytes]:
    return {
        path.relative_to(folder): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("written", ["csv", "parquet"])
def test_the_same_seed_and_size_give_the_same_bytes(written: Format, tmp_path: Path) -> None:
    write(tmp_path / "a", SIZE, seed=5, format=written)
    write(tmp_path / "b", SIZE, seed=5, format=written)
    write(tmp_path / "c", SIZE, seed=6, format=written)

    files = every_file(tmp_path / "a")
    assert files == every_file(tmp_path / "b") != every_file(tmp_path / "c")
    assert sorted(files) == sorted(
        Path(source, f"{number}.{written}")
        for source, files in SOURCES.items()
        for number in range(files)
    )


def test_parquet_holds_the_rows_of_csv(folder: Path, tmp_path: Path) -> None:
    write(tmp_path, SIZE, seed=5, format="parquet")

    assert answers(tmp_path) == answers(folder)
    assert all(answers(folder).values())


def test_a_size_without_transactions_gives_files_with_headers_only(tmp_path: Path) -> None:
    write(tmp_path, Size(0, files=2), seed=1)

    assert sorted(path.name for path in (tmp_path / "transactions").iterdir()) == ["0.csv", "1.csv"]
    assert not any(answers(tmp_path).values())


def test_there_are_as_many_rows_as_asked_for(folder: Path) -> None:
    assert one(folder, "transactions", "SELECT count(DISTINCT transaction_id) FROM rows") == 3_001
    assert one(folder, "transaction_items", "SELECT count(*) FROM rows") == 6_002


def test_ids_next_to_empty_fields_are_written_as_floats(folder: Path) -> None:
    text = (folder / "transactions" / "0.csv").read_text().splitlines()
    users = {line.split(",")[4].strip('"')[-2:] for line in text[1:]}

    assert users == {"", ".0"}


def test_years_go_beyond_the_question_and_one_month_is_empty(folder: Path) -> None:
    years = "SELECT list_sort(list(DISTINCT year(created_at))) FROM rows"
    empty = "SELECT count(*) FROM rows WHERE strftime(created_at, '%Y-%m') = '2024-09'"

    for source in ("transactions", "transaction_items"):
        assert one(folder, source, years) == [2023, 2024, 2025, 2026]
        assert one(folder, source, empty) == 0


def test_sales_happen_at_the_first_and_the_last_second_and_one_beyond(folder: Path) -> None:
    question = """
        SELECT count(DISTINCT created_at::TIME) FROM rows
        WHERE created_at::TIME IN ('05:59:59', '06:00:00', '23:00:00', '23:00:01')
        """
    assert one(folder, "transactions", question) == 4


def test_each_store_has_more_equally_frequent_customers_than_places(folder: Path) -> None:
    question = """
        , visits AS (
            SELECT store_id, user_id, count(*) AS visits FROM rows
            WHERE user_id IS NOT NULL AND year(created_at) BETWEEN 2024 AND 2025 GROUP BY ALL
        ), ranked AS (
            SELECT *, row_number() OVER (PARTITION BY store_id ORDER BY visits DESC) AS place
            FROM visits
        )
        SELECT count(*) FROM ranked AS third JOIN ranked AS fourth USING (store_id, visits)
        WHERE third.place = 3 AND fourth.place = 4
        """
    assert one(folder, "transactions", question) == SIZE.stores


def test_in_some_months_two_items_sell_best_and_earn_most(folder: Path) -> None:
    question = """
        , sold AS (
            SELECT strftime(created_at, '%Y-%m') AS month, item_id,
                   sum(quantity) AS quantity, sum(subtotal) AS subtotal
            FROM rows GROUP BY ALL
        )
        SELECT list_sort(list(DISTINCT one.month)) FROM sold AS one JOIN sold AS other
            ON one.item_id = 1 AND other.item_id = 2 AND one.month = other.month
            AND one.quantity = other.quantity AND one.subtotal = other.subtotal
        """
    assert one(folder, "transaction_items", question) == [
        f"{year}-{month}"
        for year, month in [(2023, "10"), (2024, "03"), (2024, "10"), (2025, "03"), (2025, "10")]
    ] + ["2026-03"]


def test_rows_repeat_and_a_few_stores_sell_most(folder: Path) -> None:
    repeated = "SELECT count(*) - count(DISTINCT rows) FROM rows"
    busiest = "SELECT max(share) FROM (SELECT count(*) / 3001 AS share FROM rows GROUP BY store_id)"

    assert isinstance(found := one(folder, "transaction_items", repeated), int)
    assert found > 10
    assert isinstance(share := one(folder, "transactions", busiest), float)
    assert share > 2 / SIZE.stores
