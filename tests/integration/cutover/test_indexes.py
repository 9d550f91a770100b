"""Indexes in PostgreSQL: versioned writes, exact values, and the alias."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Thread

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.cutover.conftest import SOURCE, TARGET, Shop
from tests.waiting import wait_until
from tidegate.cutover import PostgresTable, PostgresTarget
from tidegate.cutover.postgres_target import PostgresIndexes
from tidegate.errors import AliasBusy, AliasDiffers, IndexDiffers, UnknownTableColumn
from tidegate.store import Connection, Database
from tidegate.store.cutover.change_log import DELETED, VERSION
from tidegate.store.cutover.indexes import SwitchRecord
from tidegate.store.cutover.tables import KeyRange

BY = SwitchRecord("a test")
WAITING = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE datname = current_database() AND wait_event_type = 'Lock'"
)
NAMES = ["id", "title", "body", "price", "changed_at", "notes", VERSION, DELETED]


@pytest.fixture
def indexes(shop: Shop, database: Database) -> Iterator[PostgresIndexes]:
    with SOURCE.open(database) as source, TARGET.open(database) as opened:
        opened.create("v1", source.shape())
        yield opened


def row(at: int, version: int, title: str = "x", *, is_deleted: bool = False) -> list[str | None]:
    now = "2026-01-01 00:00:00+00"
    return [str(at), title, None, None, now, None, str(version), str(is_deleted).lower()]


def rows(*given: list[str | None]) -> pa.Table:
    columns = zip(*given, strict=True)
    return pa.table({name: list(values) for name, values in zip(NAMES, columns, strict=True)})


def shown(shop: Shop) -> list[tuple[int, str]]:
    return shop.do("SELECT id, title FROM search.articles ORDER BY id")


def test_an_older_version_never_overwrites_a_newer_one(
    shop: Shop, indexes: PostgresIndexes
) -> None:
    assert indexes.write("v1", rows(row(1, 5, "new"))) == 1
    assert indexes.write("v1", rows(row(1, 4, "old"))) == 0
    assert indexes.write("v1", rows(row(1, 5, "new"))) == 1
    assert shop.do("SELECT title FROM search.v1") == [("new",)]


def test_a_deleted_row_is_not_brought_back_by_an_older_write(
    shop: Shop, indexes: PostgresIndexes
) -> None:
    indexes.write("v1", rows(row(1, 5, is_deleted=True)))
    indexes.write("v1", rows(row(1, 4)))
    indexes.switch("v1", BY, shop.database.transact)
    assert shown(shop) == []
    indexes.write("v1", rows(row(1, 6, "back")))
    assert shown(shop) == [(1, "back")]


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_writes_in_any_order_and_number_leave_the_newest(
    shop: Shop, indexes: PostgresIndexes, data: st.DataObject
) -> None:
    shop.do("TRUNCATE search.v1")
    changes = st.tuples(st.integers(1, 3), st.integers(1, 6))
    written = data.draw(st.lists(st.lists(changes, min_size=1, max_size=5), max_size=6))
    for batch in written:
        indexes.write(
            "v1",
            rows(
                *(
                    row(at, version, f"v{version}", is_deleted=version % 3 == 0)
                    for at, version in batch
                )
            ),
        )
    newest: dict[int, int] = {}
    for at, version in (it for batch in written for it in batch):
        newest[at] = max(version, newest.get(at, 0))
    assert shop.versions("v1") == {at: (it, it % 3 == 0) for at, it in newest.items()}


def test_values_of_any_type_arrive_exactly(shop: Shop, database: Database) -> None:
    shop.do(
        "CREATE TYPE shop.size AS ENUM ('small', 'large');"
        "CREATE TABLE shop.things (part text, number bigint, t text, b bytea, d double precision,"
        " n numeric, a text[], j json, i interval, s shop.size, at timestamptz,"
        ' "Odd ""name" text, PRIMARY KEY (part, number))'
    )
    shop.do(
        "INSERT INTO shop.things VALUES"
        r" ('a,b', 1, E'two\nlines \"quoted\" \\ back', '\x00ff', '-0', 'NaN',"
        r""" ARRAY['x', NULL, 'a"b'], '{"k":  [1]}', '1 day -2 hours', 'small', 'infinity', ''),"""
        " ('a', 2, '', NULL, 1e-300, 1.50, '{}', NULL, NULL, NULL, '2026-02-03 04:05:06.789+00',"
        " E'\\t\\r\\n'),"
        " ('ü', -3, NULL, '', 'Infinity', 0, NULL, 'null', NULL, 'large', NULL, NULL)"
    )
    table, target = PostgresTable("shop.things"), PostgresTarget("search.things", text=("t",))
    with table.open(database) as source, target.open(database) as indexes:
        source.start_log()
        indexes.create("things_v1", source.shape())
        shape = source.shape(indexes.columns("things_v1"))
        keys = [("a,b", "1"), ("a", "2"), ("ü", "-3")]
        indexes.write("things_v1", source.rows_of(keys, shape))
        whole = KeyRange()
        assert source.digest(whole, shape) == indexes.digest("things_v1", whole, shape)
        assert source.checksums(whole, shape) == indexes.checksums("things_v1", whole, shape)
        texts = 'part, number, t, b, d::text, n, a, j::text, i, s, at, "Odd ""name"'
        assert (
            shop.do(f"SELECT {texts} FROM shop.things EXCEPT SELECT {texts} FROM search.things_v1")
            == []
        )


def test_switching_again_notes_nothing(shop: Shop, indexes: PostgresIndexes) -> None:
    for _ in range(2):
        indexes.switch("v1", BY, shop.database.transact)
    assert indexes.current() == "search.v1"
    assert shop.do("SELECT index, previous FROM tidegate.alias_switch") == [("search.v1", None)]


def test_a_switch_is_there_with_what_is_done_together_or_not_at_all(
    shop: Shop, indexes: PostgresIndexes
) -> None:
    def fails(work: object) -> None:
        def both(connection: Connection) -> None:
            assert callable(work)
            work(connection)
            raise ZeroDivisionError

        shop.database.transact(both)

    with pytest.raises(ZeroDivisionError):
        indexes.switch("v1", BY, fails)
    assert indexes.current() is None
    assert shop.do("SELECT count(*) FROM tidegate.alias_switch") == [(0,)]


def test_of_two_switches_at_once_the_second_notes_what_the_first_has_made(
    shop: Shop, indexes: PostgresIndexes, database: Database
) -> None:
    with SOURCE.open(database) as source:
        for index in ("v2", "v3"):
            indexes.create(index, source.shape())
    indexes.switch("v1", BY, database.transact)
    second = Thread(target=indexes.switch, args=("v3", BY, database.transact))

    def meanwhile(work: Callable[[Connection], None]) -> None:
        def first(connection: Connection) -> None:
            work(connection)
            second.start()
            wait_until(lambda: shop.do(WAITING) == [(1,)])

        database.transact(first)

    indexes.switch("v2", BY, meanwhile)
    second.join(30)
    noted = shop.do("SELECT index, previous FROM tidegate.alias_switch ORDER BY id")
    assert noted[1:] == [("search.v2", "search.v1"), ("search.v3", "search.v2")]


def test_a_switch_does_not_queue_behind_a_long_query(
    shop: Shop, indexes: PostgresIndexes, database: Database
) -> None:
    with SOURCE.open(database) as source:
        indexes.create("v2", source.shape())
    indexes.switch("v1", BY, shop.database.transact)
    with psycopg.connect(shop.url) as reader:
        reader.execute("SELECT * FROM search.articles")
        with pytest.raises(AliasBusy):
            indexes.switch("v2", BY, shop.database.transact)
        assert shown(shop) == []
    indexes.switch("v2", BY, shop.database.transact)
    assert indexes.current() == "search.v2"


def test_an_index_without_the_columns_of_readers_is_refused_before_the_backfill(
    shop: Shop, indexes: PostgresIndexes, database: Database
) -> None:
    indexes.switch("v1", BY, shop.database.transact)
    fewer = PostgresTable("shop.articles", columns=("title", "body"))
    with fewer.open(database) as source, pytest.raises(AliasDiffers) as refused:
        indexes.create("v2", source.shape())
    assert "price" in refused.value.reason
    assert not shop.do("SELECT to_regclass('search.v2')")[0][0]


def test_readers_keep_their_columns_when_there_are_more(
    shop: Shop, indexes: PostgresIndexes, database: Database
) -> None:
    indexes.switch("v1", BY, shop.database.transact)
    shop.do("ALTER TABLE shop.articles ADD COLUMN weight integer")
    with SOURCE.open(database) as source:
        indexes.create("v2", source.shape())
    indexes.switch("v2", BY, shop.database.transact)
    found = shop.do(
        "SELECT column_name FROM information_schema.columns"
        " WHERE table_schema = 'search' AND table_name = 'articles' ORDER BY ordinal_position"
    )
    assert [name for (name,) in found] == [*NAMES[:6], "document", "weight"]


def test_something_else_under_the_name_of_an_index_is_not_used(
    shop: Shop, indexes: PostgresIndexes, database: Database
) -> None:
    shop.do("CREATE TABLE search.v2 (id integer PRIMARY KEY)")
    with SOURCE.open(database) as source, pytest.raises(IndexDiffers):
        indexes.create("v2", source.shape())


def test_columns_that_the_table_does_not_have_are_named(shop: Shop, database: Database) -> None:
    target = PostgresTarget("search.articles", text=("tittle",))
    with (
        SOURCE.open(database) as source,
        target.open(database) as indexes,
        pytest.raises(UnknownTableColumn) as unknown,
    ):
        indexes.create("v1", source.shape())
    assert unknown.value.column == "tittle"
