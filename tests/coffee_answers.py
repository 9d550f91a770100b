"""The answers of the coffee pipeline by other means: SQL of its own, on DuckDB.

For tests and benchmarks that must not trust what they check. Nothing here is taken from the
pipeline's declaration and nothing runs on Spark:

    answers(folder)["q3"]                  the rows, in the order of the file
    csv_text("q3", answers(folder)["q3"])  the file itself
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from decimal import Decimal
from pathlib import Path

import duckdb

Value = str | int | Decimal | date | None
Row = tuple[Value, ...]

FIELDS = {
    "transactions": ("transaction_id", "store_id", "user_id", "final_amount", "created_at"),
    "transaction_items": ("item_id", "quantity", "subtotal", "created_at"),
    "menu_items": ("item_id", "item_name"),
    "stores": ("store_id", "store_name"),
    "users": ("user_id", "birthdate"),
}
"""What the questions need of each source; files may have more columns, in any order."""

COLUMNS = {
    "q1": ("transaction_id", "final_amount"),
    "q2_best_selling": ("year_month_created_at", "item_name", "sellings_qty"),
    "q2_most_profit": ("year_month_created_at", "item_name", "profit_sum"),
    "q3": ("year_half_created_at", "store_name", "tpv"),
    "q4": ("store_name", "birthdate"),
}

# Whole numbers go through a decimal: `12.0` is 12, and large ones keep every digit.
TYPED = """
CREATE TABLE sale AS SELECT
    transaction_id,
    nullif(trim(store_id), '')::DECIMAL(38, 4)::BIGINT AS store_id,
    nullif(trim(user_id), '')::DECIMAL(38, 4)::BIGINT AS user_id,
    nullif(trim(final_amount), '')::DECIMAL(12, 2) AS final_amount,
    nullif(trim(created_at), '')::TIMESTAMP AS created_at
FROM transactions_text;

CREATE TABLE sold AS SELECT
    nullif(trim(item_id), '')::DECIMAL(38, 4)::BIGINT AS item_id,
    nullif(trim(quantity), '')::DECIMAL(38, 4)::BIGINT AS quantity,
    nullif(trim(subtotal), '')::DECIMAL(12, 2) AS subtotal,
    nullif(trim(created_at), '')::TIMESTAMP AS created_at
FROM transaction_items_text;

CREATE TABLE item AS SELECT
    nullif(trim(item_id), '')::DECIMAL(38, 4)::BIGINT AS item_id, item_name
FROM menu_items_text;

CREATE TABLE store AS SELECT
    nullif(trim(store_id), '')::DECIMAL(38, 4)::BIGINT AS store_id, store_name
FROM stores_text;

CREATE TABLE customer AS SELECT
    nullif(trim(user_id), '')::DECIMAL(38, 4)::BIGINT AS user_id,
    nullif(trim(birthdate), '')::DATE AS birthdate
FROM users_text;
"""

# A row without an item is a sale of nothing in particular, so it cannot be a month's best item.
MONTHLY = """
CREATE TABLE monthly AS
SELECT
    strftime(created_at, '%Y-%m') AS year_month_created_at,
    item_id,
    sum(quantity) AS sellings_qty,
    sum(subtotal) AS profit_sum
FROM sold
WHERE created_at >= '2024-01-01' AND created_at < '2026-01-01' AND item_id IS NOT NULL
GROUP BY ALL
"""

QUESTIONS = {
    "q1": """
        SELECT transaction_id, final_amount
        FROM sale
        WHERE created_at >= '2024-01-01' AND created_at < '2026-01-01'
          AND date_trunc('second', created_at)::TIME BETWEEN '06:00:00' AND '23:00:00'
          AND final_amount >= 75.00
        """,
    "q2_best_selling": """
        WITH best AS (
            SELECT year_month_created_at, sellings_qty,
                   first(item_id ORDER BY item_id) AS item_id
            FROM monthly AS one
            WHERE sellings_qty IS NOT DISTINCT FROM (
                SELECT max(sellings_qty) FROM monthly AS other
                WHERE other.year_month_created_at = one.year_month_created_at
            )
            GROUP BY ALL
        )
        SELECT year_month_created_at, item_name, sellings_qty FROM best JOIN item USING (item_id)
        """,
    "q2_most_profit": """
        WITH best AS (
            SELECT year_month_created_at, profit_sum,
                   first(item_id ORDER BY item_id) AS item_id
            FROM monthly AS one
            WHERE profit_sum IS NOT DISTINCT FROM (
                SELECT max(profit_sum) FROM monthly AS other
                WHERE other.year_month_created_at = one.year_month_created_at
            )
            GROUP BY ALL
        )
        SELECT year_month_created_at, item_name, profit_sum FROM best JOIN item USING (item_id)
        """,
    "q3": """
        WITH paid AS (
            SELECT
                strftime(created_at, '%Y-H') || ceil(month(created_at) / 6)::INT
                    AS year_half_created_at,
                store_id,
                sum(final_amount) AS tpv
            FROM sale
            WHERE created_at >= '2024-01-01' AND created_at < '2026-01-01'
              AND date_trunc('second', created_at)::TIME BETWEEN '06:00:00' AND '23:00:00'
            GROUP BY ALL
        )
        SELECT year_half_created_at, store_name, tpv FROM paid JOIN store USING (store_id)
        """,
    "q4": """
        WITH visits AS (
            SELECT store_id, user_id, count(*) AS visits
            FROM sale
            WHERE created_at >= '2024-01-01' AND created_at < '2026-01-01'
              AND user_id IS NOT NULL
            GROUP BY ALL
        ),
        regular AS (
            SELECT store_id, user_id FROM visits
            QUALIFY row_number() OVER (
                PARTITION BY store_id ORDER BY visits DESC, user_id DESC
            ) <= 3
        )
        SELECT store_name, birthdate
        FROM regular JOIN store USING (store_id) JOIN customer USING (user_id)
        """,
}


def answers(folder: Path) -> dict[str, list[Row]]:
    """The rows of every sink for `folder/<source>/*.csv` (or `*.parquet`), as `csv_text` has them.

    A source without files is empty.
    """
    with duckdb.connect() as database:
        database.execute("SET enable_progress_bar = false")
        for source, fields in FIELDS.items():
            database.execute(f"CREATE VIEW {source}_text AS {_as_text(folder / source, fields)}")
        database.execute(TYPED)
        database.execute(MONTHLY)
        return {
            sink: _ordered(database.execute(question).fetchall())
            for sink, question in QUESTIONS.items()
        }


def csv_text(sink: str, rows: Iterable[Row]) -> str:
    """What `<sink>.csv` must say: a header, then the rows ordered by columns from left to right.

    Nulls are empty fields, an empty string is `""`, quotes are doubled, decimals are plain.
    """
    lines = [COLUMNS[sink], *_ordered(rows)]
    return "".join(",".join(map(_field, line)) + "\n" for line in lines)


def _as_text(folder: Path, fields: tuple[str, ...]) -> str:
    wanted = ", ".join(f"{field}::VARCHAR AS {field}" for field in fields)
    if files := sorted(map(str, folder.glob("*.csv"))):
        return f"""
            SELECT {wanted} FROM read_csv(
                {files}, header = true, all_varchar = true, union_by_name = true,
                auto_detect = true, delim = ',', quote = '"', escape = '"',
                nullstr = '', allow_quoted_nulls = false
            )"""
    if files := sorted(map(str, folder.glob("*.parquet"))):
        return f"SELECT {wanted} FROM read_parquet({files}, union_by_name = true)"
    nothing = ", ".join(f"NULL::VARCHAR AS {field}" for field in fields)
    return f"SELECT {nothing} WHERE false"


def _ordered(rows: Iterable[Row]) -> list[Row]:
    """By columns from left to right, nulls first."""
    return sorted(rows, key=lambda row: [(value is not None, value) for value in row])


def _field(value: Value) -> str:
    if value is None:
        return ""
    text = f"{value:f}" if isinstance(value, Decimal) else str(value)
    needs_quotes = text == "" or any(special in text for special in ',"\r\n')
    return '"' + text.replace('"', '""') + '"' if needs_quotes else text
