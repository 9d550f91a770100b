"""The log of changes: what is read, in which order, and with which versions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pyarrow as pa
import pytest

from tests.integration.cutover.conftest import SOURCE, Shop
from tidegate.cutover.source import TableSource
from tidegate.errors import GeneratedKey, NoPrimaryKey, NotFollowed, TableBusy, UnknownTable
from tidegate.store import Database
from tidegate.store.cutover import change_capture, change_log
from tidegate.store.cutover.change_log import DELETED, VERSION
from tidegate.store.cutover.tables import KeyRange, TableName, shape_of

TABLE = TableName("shop", "articles")


@pytest.fixture
def source(shop: Shop, database: Database) -> Iterator[TableSource]:
    with SOURCE.open(database) as opened:
        opened.start_log()
        yield opened


@contextmanager
def begun(shop: Shop, *statements: str) -> Iterator[psycopg.Connection]:
    """A transaction that has done these, and is committed at the end."""
    with psycopg.connect(shop.url) as connection:
        for statement in statements:
            connection.execute(statement.encode())
        yield connection


def keys(source: TableSource, offset: int) -> list[str]:
    return [it.key[0] for it in source.changes(offset, -1, 1000).rows]


def versions(rows: pa.Table) -> dict[str, int]:
    return dict(zip(rows["id"].to_pylist(), map(int, rows[VERSION].to_pylist()), strict=True))


def insert(at: int) -> str:
    return f"INSERT INTO shop.articles (id, title) VALUES ({at}, 'x')"


def test_nothing_is_read_behind_a_transaction_that_is_still_running(
    shop: Shop, source: TableSource
) -> None:
    offset = source.head()
    with begun(shop, insert(1)) as slow:
        shop.do(insert(2))
        assert keys(source, offset) == []
        assert source.lag(offset).changes == 1
        assert str(slow.info.backend_pid) in source.holder()
    assert keys(source, offset) == ["1", "2"]


def test_a_transaction_that_commits_late_is_not_skipped(shop: Shop, source: TableSource) -> None:
    offset = source.head()
    with begun(shop, insert(1)):
        shop.do(insert(2))
        found = source.changes(offset, -1, 1000)
        passed = max(offset, found.bound)
    seen = keys(source, passed)
    assert "1" in seen


def test_the_head_is_reached_when_all_that_was_running_has_ended(
    shop: Shop, source: TableSource
) -> None:
    with begun(shop, insert(1)):
        shop.do(insert(2))
        watermark = source.head()
        assert source.changes(0, -1, 10).bound < watermark
    assert source.changes(0, -1, 10).bound >= watermark


def test_what_is_rolled_back_was_never_there(shop: Shop, source: TableSource) -> None:
    offset = source.head()
    with begun(shop, insert(1)) as connection:
        connection.rollback()
    assert keys(source, offset) == []


def test_pages_follow_each_other_within_one_transaction(shop: Shop, source: TableSource) -> None:
    offset, after, seen = source.head(), -1, []
    shop.add(1, 25)
    while page := source.changes(offset, after, 10).rows:
        seen += [it.key[0] for it in page]
        offset, after = page[-1].xid, page[-1].number
    assert seen == [str(at) for at in range(1, 26)]


def test_a_row_is_read_with_the_number_of_its_last_change(shop: Shop, source: TableSource) -> None:
    shop.do(insert(1))
    first = versions(source.rows_of([("1",)], source.shape()))["1"]
    shop.do("UPDATE shop.articles SET title = 'y' WHERE id = 1")
    second = versions(source.rows_of([("1",)], source.shape()))["1"]
    shop.do("DELETE FROM shop.articles WHERE id = 1")
    gone = source.rows_of([("1",)], source.shape())
    assert 0 < first < second < versions(gone)["1"]
    assert gone[DELETED].to_pylist() == ["t"]
    assert gone["title"].to_pylist() == [None]


def test_rows_that_were_there_before_the_log_have_version_zero(
    shop: Shop, database: Database
) -> None:
    shop.add(1, 3)
    with SOURCE.open(database) as source:
        source.start_log()
        shop.do("UPDATE shop.articles SET title = 'y' WHERE id = 2")
        rows = database.transact(
            lambda c: change_log.rows_within(c, TABLE, source.shape(), KeyRange())
        )
    found = versions(rows)
    assert (found["1"], found["3"]) == (0, 0)
    assert found["2"] > 0


def test_a_changed_key_is_a_row_that_is_gone_and_another(shop: Shop, source: TableSource) -> None:
    shop.do(insert(1))
    offset = source.head()
    shop.do("UPDATE shop.articles SET id = 9 WHERE id = 1")
    assert keys(source, offset) == ["1", "9"]


def test_a_table_that_is_emptied_logs_every_row(shop: Shop, source: TableSource) -> None:
    shop.add(1, 3)
    offset = source.head()
    shop.do("TRUNCATE shop.articles")
    assert sorted(keys(source, offset)) == ["1", "2", "3"]


def test_writers_need_no_rights_to_the_log(shop: Shop, source: TableSource) -> None:
    shop.do("CREATE ROLE clerk_of_shop")
    try:
        shop.do(
            "GRANT USAGE ON SCHEMA shop TO clerk_of_shop;"
            "GRANT ALL ON shop.articles TO clerk_of_shop"
        )
        offset = source.head()
        with begun(shop, "SET ROLE clerk_of_shop", insert(1)):
            pass
        assert keys(source, offset) == ["1"]
    finally:
        shop.do("DROP OWNED BY clerk_of_shop; DROP ROLE clerk_of_shop")


def test_the_log_is_kept_until_the_slowest_consumer_has_it_behind_it(
    shop: Shop, source: TableSource
) -> None:
    begin = source.register("slow")
    source.register("quick")
    shop.add(1, 5)
    end = source.head()
    source.advance("quick", end)
    assert len(keys(source, begin)) == 5
    source.advance("slow", end)
    assert keys(source, begin) == []


def test_a_consumer_that_is_forgotten_keeps_nothing(shop: Shop, source: TableSource) -> None:
    begin = source.register("gone")
    source.register("quick")
    shop.add(1, 5)
    source.forget_consumer("gone")
    source.advance("quick", source.head())
    assert keys(source, begin) == []


def test_a_consumer_that_is_forgotten_does_not_come_back(shop: Shop, source: TableSource) -> None:
    offset = source.register("gone")
    source.forget_consumer("gone")
    with pytest.raises(NotFollowed):
        source.advance("gone", offset)


def test_a_consumer_that_registers_again_begins_where_it_was(
    shop: Shop, source: TableSource
) -> None:
    offset = source.register("late")
    shop.add(1, 5)
    assert source.register("late") == offset
    assert len(keys(source, offset)) == 5


def test_logging_does_not_start_during_a_long_write(shop: Shop, database: Database) -> None:
    with SOURCE.open(database) as source, begun(shop, insert(1)), pytest.raises(TableBusy):
        source.start_log(bound=0.1)


def test_logging_that_has_started_waits_for_no_writer(shop: Shop, source: TableSource) -> None:
    with begun(shop, insert(1)):
        source.start_log(bound=0.0)


def test_numbers_go_on_when_a_log_is_made_again(
    shop: Shop, source: TableSource, database: Database
) -> None:
    shop.do(insert(1))
    first = versions(source.rows_of([("1",)], source.shape()))["1"]
    database.transact(lambda c: change_capture.drop_log(c, TABLE))
    source.start_log()
    shop.do("UPDATE shop.articles SET title = 'y' WHERE id = 1")
    assert versions(source.rows_of([("1",)], source.shape()))["1"] > first


def test_a_table_without_a_usable_key_is_refused(shop: Shop, database: Database) -> None:
    shop.do("CREATE TABLE shop.keyless (id integer)")
    shop.do("CREATE TABLE shop.late (id integer PRIMARY KEY DEFERRABLE)")
    for name in ("keyless", "late"):
        with pytest.raises(NoPrimaryKey):
            database.transact(lambda c, at=name: shape_of(c, TableName("shop", at)))  # type: ignore[misc]
    with pytest.raises(UnknownTable):
        database.transact(lambda c: shape_of(c, TableName("shop", "nothing")))


def test_a_key_that_holds_a_generated_column_is_refused(shop: Shop, database: Database) -> None:
    shop.do(
        "CREATE TABLE shop.made (a integer, b integer,"
        " c integer GENERATED ALWAYS AS (b * 2) STORED, PRIMARY KEY (a, c))"
    )
    with pytest.raises(GeneratedKey) as refused:
        database.transact(lambda c: shape_of(c, TableName("shop", "made")))
    assert (refused.value.table, refused.value.column) == ("shop.made", "c")


def test_columns_that_a_key_includes_are_not_of_it(shop: Shop, database: Database) -> None:
    shop.do("CREATE TABLE shop.t (c text, b text, a integer, PRIMARY KEY (a, b) INCLUDE (c))")
    shape = database.transact(lambda c: shape_of(c, TableName("shop", "t")))
    assert [it.name for it in shape.key] == ["a", "b"]
    assert shape.key_first == ("a", "b", "c")


def test_ranges_cut_a_table_without_gaps(shop: Shop, source: TableSource) -> None:
    shop.add(1, 100)
    pieces = source.pieces(KeyRange(("10",), ("90",)), rows=30)
    assert pieces == [
        KeyRange(("10",), ("40",)),
        KeyRange(("40",), ("70",)),
        KeyRange(("70",), ("90",)),
    ]
    assert source.bound_after(("90",), 10) == ("100",)
    assert source.bound_after(("90",), 11) is None
