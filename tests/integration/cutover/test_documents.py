"""The searchable text of a row: one that is too long stops nobody, and it is made in one way."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import psycopg
import pytest

from tests.integration.cutover.conftest import SOURCE, TARGET, Shop
from tidegate.cutover import PostgresTable, PostgresTarget
from tidegate.cutover.change_consumer import ChangeApplier
from tidegate.cutover.postgres_target import PostgresIndexes
from tidegate.cutover.source import TableSource
from tidegate.errors import ColumnReserved, IndexDiffers
from tidegate.store import Database
from tidegate.store.core.postgres_binaries import programs

MANY_WORDS = (
    "(SELECT string_agg(md5(at::text), ' ' ORDER BY at) FROM generate_series(1, 50000) AS at)"
)


@pytest.fixture
def source(shop: Shop, database: Database) -> Iterator[TableSource]:
    shop.add(1, 10)
    with SOURCE.open(database) as opened:
        opened.start_log()
        yield opened


@pytest.fixture
def indexes(source: TableSource, database: Database) -> Iterator[PostgresIndexes]:
    with TARGET.open(database) as opened:
        opened.create("v1", source.shape())
        yield opened


def test_a_row_with_too_many_words_is_found_by_the_first_and_stops_no_other(
    shop: Shop, source: TableSource, indexes: PostgresIndexes
) -> None:
    follower = ChangeApplier(source, indexes, "v1", source.register(indexes.identity("v1")))
    shop.do(f"UPDATE shop.articles SET body = {MANY_WORDS} WHERE id = 1")
    shop.do("UPDATE shop.articles SET title = 'innocent' WHERE id = 2")
    follower.catch_up()
    assert shop.do("SELECT title FROM search.v1 WHERE id = 2") == [("innocent",)]
    asked = "SELECT id FROM search.v1 WHERE tidegate_document @@ to_tsquery('english', md5('1'))"
    assert shop.do(asked) == [(1,)]
    assert shop.do("SELECT i.body = s.body FROM search.v1 i JOIN shop.articles s USING (id)"
                   " WHERE id = 1") == [(True,)]  # fmt: skip


def test_a_document_is_what_postgresql_makes_of_the_text(shop: Shop) -> None:
    text = "Rivers and bridges"
    made = shop.do("SELECT tidegate.document('english', %s)::text", text)
    assert made == shop.do("SELECT to_tsvector('english', %s)::text", text)


def test_documents_are_restored_from_a_dump(
    shop: Shop,
    indexes: PostgresIndexes,
    empty_url: str,
) -> None:
    columns = "id, title, changed_at, tidegate_version, tidegate_deleted"
    shop.do(f"INSERT INTO search.v1 ({columns}) VALUES (1, 'Rivers', now(), 1, false)")
    dumped = run("pg_dump", "--dbname", shop.url)
    run("psql", "--dbname", empty_url, "--set", "ON_ERROR_STOP=1", given=dumped)
    with psycopg.connect(empty_url) as connection:
        found = connection.execute("SELECT tidegate_document::text FROM search.v1").fetchall()
    assert found == [("'river':1",)]


def run(program: str, *arguments: str, given: bytes = b"") -> bytes:
    command = [str(programs() / program), *arguments]
    return subprocess.run(command, input=given, capture_output=True, check=True).stdout


@pytest.mark.parametrize("column", ["document", "tidegate_version", "tidegate_note"])
def test_columns_that_an_index_has_of_its_own_are_refused(
    shop: Shop, database: Database, column: str
) -> None:
    shop.do(f"CREATE TABLE shop.papers (id integer PRIMARY KEY, {column} text)")
    target = PostgresTarget("search.papers", text=(column,))
    with PostgresTable("shop.papers").open(database) as source, target.open(database) as indexes:
        with pytest.raises(ColumnReserved) as refused:
            indexes.create("papers_v1", source.shape())
        assert not indexes.is_there("papers_v1")
    assert (refused.value.index, refused.value.column) == ("search.papers_v1", column)


@pytest.mark.parametrize(
    "other",
    [
        PostgresTarget("search.articles", text=("title",), language="english"),
        PostgresTarget("search.articles", text=("title", "body")),
    ],
)
def test_an_index_that_searches_otherwise_is_not_taken(
    source: TableSource, indexes: PostgresIndexes, database: Database, other: PostgresTarget
) -> None:
    indexes.create("v1", source.shape())
    with other.open(database) as others, pytest.raises(IndexDiffers, match="searches other"):
        others.create("v1", source.shape())
