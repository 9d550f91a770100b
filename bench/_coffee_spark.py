"""Peer of the pipeline benchmark: a plain PySpark script over the whole folder.

What a good data engineer would write today: declared schemas, the DataFrame API, one write per
result. It knows that all data is there before it starts, keeps nothing that would survive a crash,
and gives no results in the meantime. It caches what it would compute twice: the payments of
the two years, which three questions start from, and the small table that both halves of Q2 rank.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias

from pyspark.sql import DataFrame, SparkSession

from bench import _coffee as coffee
from bench._coffee import Format

Work: TypeAlias = Callable[[], None]


def plain_spark(
    session: SparkSession,
    folder: Path,
    out: Path,
    format: Format = "csv",  # noqa: A002
    *,
    concurrent: bool = False,
    cached: bool = True,
) -> None:
    """Answer the four questions over `folder`, as `out/<sink>/part-*`.

    One question after the other, or all at once from threads. Without `cached`, payments are read
    again for each question.
    """
    sources = {source: coffee.read(session, folder, source, format) for source in coffee.SOURCES}
    payments = coffee.in_2024_or_2025(sources["transactions"])
    payments = payments.select(
        "transaction_id", "store_id", "user_id", "final_amount", "created_at"
    )
    payments = payments.cache() if cached else payments
    try:
        _do(_questions(sources, payments, out, format), concurrent)
    finally:
        payments.unpersist()


def _questions(
    sources: dict[str, DataFrame], payments: DataFrame, out: Path, kind: Format
) -> list[Work]:
    def q1() -> None:
        coffee.write(coffee.large(payments), out / "q1", kind)

    def q2() -> None:
        sold = coffee.monthly(coffee.in_2024_or_2025(sources["transaction_items"])).cache()
        for sink, by in (("q2_best_selling", "sellings_qty"), ("q2_most_profit", "profit_sum")):
            best = coffee.best_of_month(sold, sources["menu_items"], by)
            coffee.write(best, out / sink, kind)
        sold.unpersist()

    def q3() -> None:
        paid = coffee.half_yearly(payments)
        coffee.write(coffee.with_store(paid, sources["stores"]), out / "q3", kind)

    def q4() -> None:
        frequent = coffee.most_frequent(coffee.visits(payments))
        found = coffee.birthdays(frequent, sources["stores"], sources["users"])
        coffee.write(found, out / "q4", kind)

    return [q1, q2, q3, q4]


def _do(questions: list[Work], concurrent: bool) -> None:
    with ThreadPoolExecutor(len(questions) if concurrent else 1) as threads:
        for answered in [threads.submit(question) for question in questions]:
            answered.result()
