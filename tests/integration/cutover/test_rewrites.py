"""A table that is rewritten while it is read: no row of it is taken for one that is gone.

`ALTER TABLE` leaves nothing behind that an older look at the table could see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.integration.cutover.conftest import SOURCE, Shop
from tests.integration.cutover.test_change_consumer import Both, both  # noqa: F401  a fixture
from tests.waiting import wait_until
from tidegate.cutover import PostgresTable
from tidegate.cutover.source import TableSource
from tidegate.store import Database
from tidegate.store.cutover import change_log
from tidegate.store.cutover.change_log import DELETED
from tidegate.store.cutover.tables import KeyRange

T = TypeVar("T")
REWRITE = "ALTER TABLE shop.articles ADD COLUMN extra float8 DEFAULT random()"
WAITING = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'shop.articles'::regclass"


def during_rewrite(shop: Shop, read: Callable[[], T]) -> T:
    """What is read by somebody who waits for a table until it has been rewritten."""
    with ThreadPoolExecutor(1) as threads, psycopg.connect(shop.url) as owner:
        owner.execute(REWRITE)
        reading = threads.submit(read)
        wait_until(lambda: bool(shop.do(WAITING)))
        owner.commit()
        return reading.result(30)


@pytest.fixture(params=["read committed", "repeatable read"])
def source(request: pytest.FixtureRequest, shop: Shop, database: Database) -> Iterator[TableSource]:
    shop.add(1, 5)
    level = request.param.replace(" ", "\\ ")
    url = make_conninfo(shop.url, options=f"-c default_transaction_isolation={level}")
    with SOURCE.open(database) as own:
        own.start_log()
    with PostgresTable("shop.articles", url=url).open(database) as opened:
        yield opened


def test_a_consumer_keeps_the_rows_of_a_table_that_is_rewritten(
    shop: Shop,
    both: Both,  # noqa: F811  a fixture
) -> None:
    both.fill(shop)
    shop.do("UPDATE shop.articles SET title = 'x' WHERE id <= 5")
    during_rewrite(shop, both.follower.catch_up)
    assert shop.differences("v1") == []


def test_rows_of_keys_are_there_after_a_rewrite(shop: Shop, source: TableSource) -> None:
    shape = source.shape()
    rows = during_rewrite(shop, lambda: source.rows_of([("1",), ("2",)], shape))
    assert rows[DELETED].to_pylist() == ["f", "f"]


def test_rows_of_a_range_are_there_after_a_rewrite(shop: Shop, source: TableSource) -> None:
    shape = source.shape()
    with Database(source.url).attach() as database:

        def read() -> int:
            within = change_log.rows_within
            rows = database.transact(lambda c: within(c, source.table, shape, KeyRange()))
            return int(rows.num_rows)

        assert during_rewrite(shop, read) == 5


def test_a_comparison_sees_the_rows_of_a_table_that_is_rewritten(
    shop: Shop, source: TableSource
) -> None:
    shape = source.shape()
    before = source.digest(KeyRange(), shape), source.checksums(KeyRange(), shape)
    assert during_rewrite(shop, lambda: source.digest(KeyRange(), shape)) == before[0]
    shop.do("ALTER TABLE shop.articles DROP COLUMN extra")
    assert during_rewrite(shop, lambda: source.checksums(KeyRange(), shape)) == before[1]
