"""Whose an index is: late writers, other deployments and other people's tables."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.cutover.conftest import SOURCE, TARGET, Shop, declared
from tidegate.cutover import PostgresTarget, retire
from tidegate.cutover.change_consumer import ChangeApplier
from tidegate.cutover.postgres_target import PostgresIndexes
from tidegate.cutover.source import TableSource
from tidegate.errors import AliasDiffers, IndexDiffers, NotFollowed
from tidegate.store import Database
from tidegate.store.cutover import change_log
from tidegate.store.cutover.tables import KeyRange


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
        source.register(opened.identity("v1"))
        yield opened


def test_rows_that_were_read_for_an_index_are_not_written_to_its_successor(
    shop: Shop, source: TableSource, indexes: PostgresIndexes, database: Database
) -> None:
    shape, identity = source.shape(), indexes.identity("v1")
    late = database.transact(lambda c: change_log.rows_within(c, source.table, shape, KeyRange()))
    shop.do("UPDATE shop.articles SET title = 'new'")
    retire(database, declared(), "v1")
    indexes.create("v1", shape)
    with pytest.raises(IndexDiffers, match="recreated"):
        indexes.write("v1", late, identity)
    assert shop.versions("v1") == {}


def test_a_consumer_of_an_index_that_was_retired_does_not_feed_its_successor(
    shop: Shop, source: TableSource, indexes: PostgresIndexes, database: Database
) -> None:
    stale = ChangeApplier(source, indexes, "v1", source.head())
    retire(database, declared(), "v1")
    indexes.create("v1", source.shape())
    shop.do("UPDATE shop.articles SET title = 'new'")
    with pytest.raises(IndexDiffers):
        stale.catch_up()
    with pytest.raises(NotFollowed):
        source.advance(stale.identity, stale.offset)


def test_a_consumer_of_an_index_that_was_retired_is_told_of_it(
    shop: Shop, source: TableSource, indexes: PostgresIndexes, database: Database
) -> None:
    late = ChangeApplier(source, indexes, "v1", source.head())
    indexes.columns("v1")  # which it knows already, as one that is at work does
    shop.do("UPDATE shop.articles SET title = 'new'")
    retire(database, declared(), "v1")
    with pytest.raises(IndexDiffers, match="not an index"):
        late.catch_up()


def test_indexes_of_one_name_in_two_databases_are_followed_each_by_itself(
    source: TableSource, indexes: PostgresIndexes, shop: Shop
) -> None:
    """As another deployment would have it: the same table, and an index called the same."""
    first = indexes.identity("v1")
    shop.do("ALTER TABLE search.v1 RENAME TO elsewhere")
    shop.do("ALTER INDEX search.v1_pkey RENAME TO elsewhere_pkey")
    indexes.create("v1", source.shape())
    assert indexes.identity("v1") != first


def test_only_indexes_are_retired(shop: Shop, indexes: PostgresIndexes, database: Database) -> None:
    with pytest.raises(IndexDiffers, match="not an index"):
        retire(database, declared(), "shop.articles")
    assert len(shop.do("SELECT 1 FROM shop.articles")) == 10


def test_an_index_of_another_alias_is_neither_taken_nor_retired(
    source: TableSource, indexes: PostgresIndexes, database: Database
) -> None:
    with PostgresTarget("search.others").open(database) as others:
        with pytest.raises(IndexDiffers, match=r"not made for search\.others"):
            others.create("v1", source.shape())
        with pytest.raises(IndexDiffers, match=r"not made for search\.others"):
            others.drop("v1")


@pytest.mark.parametrize(
    "made", ["CREATE TABLE search.articles (id integer)", "CREATE VIEW search.articles AS SELECT 1"]
)
def test_what_was_created_under_the_name_of_an_alias_is_left_alone(
    shop: Shop, source: TableSource, indexes: PostgresIndexes, made: str
) -> None:
    shop.do(made)
    with pytest.raises(AliasDiffers):
        indexes.create("v2", source.shape())
