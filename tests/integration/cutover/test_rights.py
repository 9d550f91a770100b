"""What a view is beside its columns stays as it is when it is switched, for each of its readers."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.integration.cutover.conftest import SOURCE, TARGET, Shop
from tidegate.cutover.postgres_target import PostgresIndexes
from tidegate.errors import AliasDiffers
from tidegate.store import Database
from tidegate.store.cutover.indexes import SwitchRecord

BY = SwitchRecord("a test")
ROLE = "tidegate_reader"
OPTIONS = "SELECT reloptions FROM pg_class WHERE oid = 'search.articles'::regclass"
INVOKER = "ALTER VIEW search.articles SET (security_invoker = on)"


@pytest.fixture
def indexes(shop: Shop, database: Database) -> Iterator[PostgresIndexes]:
    """Readers see the first of two."""
    with SOURCE.open(database) as source, TARGET.open(database) as opened:
        for index in ("v1", "v2"):
            opened.create(index, source.shape())
        opened.switch("v1", BY, database.transact)
        yield opened


@pytest.fixture
def reader(shop: Shop, indexes: PostgresIndexes) -> Iterator[str]:
    """Somebody who may use the view, and nothing behind it."""
    shop.do(f"CREATE ROLE {ROLE}")
    shop.do(f"GRANT USAGE ON SCHEMA search TO {ROLE}; GRANT SELECT ON search.articles TO {ROLE}")
    yield ROLE
    shop.do(f"DROP OWNED BY {ROLE} CASCADE; DROP ROLE {ROLE}")


def read(shop: Shop, role: str) -> int:
    with psycopg.connect(shop.url) as connection:
        connection.execute(f"SET ROLE {role}".encode())
        return len(connection.execute(b"SELECT * FROM search.articles").fetchall())


def switch(shop: Shop, indexes: PostgresIndexes) -> None:
    indexes.switch("v2", BY, shop.database.transact)


def test_a_view_keeps_its_options(shop: Shop, indexes: PostgresIndexes) -> None:
    shop.do(
        "ALTER VIEW search.articles SET (security_barrier, security_invoker, check_option=local)"
    )
    before = shop.do(OPTIONS)
    switch(shop, indexes)
    assert shop.do(OPTIONS) == before
    assert len(before[0][0]) == 3


def test_a_view_is_read_in_the_name_of_its_owner(
    shop: Shop, indexes: PostgresIndexes, reader: str
) -> None:
    shop.do(f"GRANT SELECT ON search.v1 TO {reader}; ALTER VIEW search.articles OWNER TO {reader}")
    switch(shop, indexes)
    assert read(shop, reader) == 0


def test_readers_in_whose_name_a_view_is_read_may_read_the_next_index(
    shop: Shop, indexes: PostgresIndexes, reader: str
) -> None:
    shop.do(f"{INVOKER}; GRANT SELECT ON search.v1 TO {reader}")
    switch(shop, indexes)
    assert read(shop, reader) == 0


def test_public_rights_are_kept(shop: Shop, indexes: PostgresIndexes, reader: str) -> None:
    shop.do(f"{INVOKER}; GRANT SELECT ON search.v1 TO PUBLIC")
    switch(shop, indexes)
    assert read(shop, reader) == 0


def test_a_role_that_may_read_an_index_beside_its_view_does_not_get_the_next_one(
    shop: Shop, indexes: PostgresIndexes, reader: str
) -> None:
    shop.do(f"GRANT SELECT ON search.v1 TO {reader}")
    switch(shop, indexes)
    may = shop.do("SELECT has_table_privilege(%s, 'search.v2', 'SELECT')", reader)
    assert may == [(False,)]


def test_rows_that_are_hidden_from_readers_do_not_appear_with_a_switch(
    shop: Shop, indexes: PostgresIndexes
) -> None:
    shop.do("ALTER TABLE search.v1 ENABLE ROW LEVEL SECURITY")
    with pytest.raises(AliasDiffers, match="row security"):
        switch(shop, indexes)
    assert indexes.current() == "search.v1"
    shop.do("ALTER TABLE search.v2 ENABLE ROW LEVEL SECURITY")
    switch(shop, indexes)
    assert indexes.current() == "search.v2"
