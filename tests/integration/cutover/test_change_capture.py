"""How changes get into a log: whatever was done to names, triggers and rights before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.integration.cutover.conftest import SOURCE, Shop
from tidegate.cutover import PostgresTable
from tidegate.cutover.source import TableSource
from tidegate.errors import LoggedTwice
from tidegate.store import Database
from tidegate.store.cutover import change_capture, change_log
from tidegate.store.cutover.tables import KeyRange, TableName

PARTITIONED = """
CREATE TABLE shop.{name} (k integer PRIMARY KEY, v integer) PARTITION BY RANGE (k);
CREATE TABLE shop.{name}_1 PARTITION OF shop.{name} FOR VALUES FROM (0) TO (10);
CREATE TABLE shop.{name}_2 PARTITION OF shop.{name} FOR VALUES FROM (10) TO (20)
"""


@contextmanager
def logged(database: Database, table: str) -> Iterator[tuple[TableSource, int]]:
    """A table whose log has begun, and the offset from which on it is read."""
    with PostgresTable(table).open(database) as source:
        yield source, source.start_log()


@contextmanager
def role(shop: Shop, name: str, *rights: str) -> Iterator[None]:
    shop.do(f"CREATE ROLE {name}")
    try:
        for right in rights:
            shop.do(right)
        yield
    finally:
        shop.do(f"REASSIGN OWNED BY {name} TO CURRENT_USER; DROP OWNED BY {name}; DROP ROLE {name}")


def keys(source: TableSource, offset: int) -> list[str]:
    return [it.key[0] for it in source.changes(offset, -1, 1000).rows]


# ── whose triggers they are ──


def test_a_table_that_takes_the_name_of_another_logs_under_it(
    shop: Shop, database: Database
) -> None:
    shop.do("CREATE TABLE shop.other (LIKE shop.articles INCLUDING ALL)")
    for name in ("shop.articles", "shop.other"):
        with logged(database, name):
            pass
    shop.do("ALTER TABLE shop.articles RENAME TO old; ALTER TABLE shop.other RENAME TO articles")
    with logged(database, "shop.articles") as (source, offset):
        shop.add(1, 2)
        shop.do("INSERT INTO shop.old (id, title) VALUES (9, 'x'); TRUNCATE shop.old")
        assert keys(source, offset) == ["1", "2"]


def test_a_table_whose_schema_was_renamed_has_another_log(shop: Shop, database: Database) -> None:
    with logged(database, "shop.articles"):
        shop.do("ALTER SCHEMA shop RENAME TO store")
    with logged(database, "store.articles") as (source, offset):
        shop.do("INSERT INTO store.articles (id, title) VALUES (1, 'x')")
        assert keys(source, offset) == ["1"]


def test_partitions_that_take_the_names_of_others_log_under_them(
    shop: Shop, database: Database
) -> None:
    for name in ("t", "u"):
        shop.do(PARTITIONED.format(name=name))
        with logged(database, f"shop.{name}"):
            pass
    shop.do("ALTER TABLE shop.t RENAME TO old; ALTER TABLE shop.u RENAME TO t")
    with logged(database, "shop.t") as (source, offset):
        shop.do("INSERT INTO shop.t VALUES (1, 1), (11, 1); INSERT INTO shop.old VALUES (5, 5)")
        shop.do("TRUNCATE shop.u_2; TRUNCATE shop.t_1")
        assert keys(source, offset) == ["1", "11", "11"]


@pytest.mark.parametrize("trigger", ["tidegate_log", "tidegate_log_truncate"])
@pytest.mark.parametrize("how", ["DISABLE", "ENABLE", "ENABLE REPLICA"])
def test_a_trigger_that_was_turned_off_on_one_partition_is_turned_on(
    how: str, trigger: str, shop: Shop, database: Database
) -> None:
    shop.do(PARTITIONED.format(name="t"))
    with logged(database, "shop.t") as (source, _):
        shop.do(f"ALTER TABLE shop.t_1 {how} TRIGGER {trigger}")
        offset = source.start_log()
        shop.do("SET session_replication_role = replica; INSERT INTO shop.t VALUES (1, 1)")
        shop.do("SET session_replication_role = origin; TRUNCATE shop.t_1")
        assert keys(source, offset) == ["1", "1"]


@pytest.mark.parametrize(("first", "second"), [("t_1", "t"), ("t", "t_1")])
def test_a_partition_is_not_logged_by_itself_and_with_its_table(
    first: str, second: str, shop: Shop, database: Database
) -> None:
    shop.do(PARTITIONED.format(name="t"))
    with logged(database, f"shop.{first}") as (source, offset):
        with pytest.raises(LoggedTwice) as refused, logged(database, f"shop.{second}"):
            pass
        assert (refused.value.table, refused.value.part) == (f"shop.{second}", "shop.t_1")
        shop.do("INSERT INTO shop.t VALUES (1, 1)")
        assert keys(source, offset) == ["1"]


def test_a_log_that_was_dropped_by_hand_is_made_again(shop: Shop, database: Database) -> None:
    with logged(database, "shop.articles") as (source, _):
        shop.do('DROP TABLE tidegate_log."shop.articles"')
        offset = source.start_log()
        shop.add(1, 1)
        assert keys(source, offset) == ["1"]


# ── names ──


def test_long_names_of_many_bytes_have_a_log_each(shop: Shop, database: Database) -> None:
    shop.do('CREATE SCHEMA "большой_магазин"')
    names = [f"большой_магазин.таблица_товаров_складов_север{it}" for it in ("", "2")]
    for name in names:
        made = TableName.parse(name).sql.as_string(None)
        shop.do(f"CREATE TABLE {made} (id integer PRIMARY KEY)")
    with logged(database, names[0]) as (first, offset), logged(database, names[1]) as (other, _):
        first.register("index")
        other.register("index")
        shop.do(f"INSERT INTO {first.table.sql.as_string(None)} VALUES (1)")
        other.advance("index", other.head())
        assert keys(first, offset) == ["1"]
        assert keys(other, offset) == []


def test_a_name_that_is_shortened_stays_unique() -> None:
    name = change_log.log_of(TableName("s", "я" * 31 + "1")).name
    assert len(name.encode()) <= change_log.LONGEST_NAME
    assert name != change_log.log_of(TableName("s", "я" * 31 + "2")).name


def test_logs_of_tables_with_like_names_have_all_their_indexes(
    shop: Shop, database: Database
) -> None:
    for year in (2023, 2024):
        name = f"shop.articles_of_the_northern_region_warehouse_inventory_{year}"
        shop.do(f"CREATE TABLE {name} (id integer PRIMARY KEY)")
        with logged(database, name):
            pass
    found = shop.do(
        "SELECT count(*) FROM pg_indexes"
        " WHERE schemaname = 'tidegate_log' AND tablename LIKE 'shop.articles%' GROUP BY tablename"
    )
    assert found == [(2,), (2,)]


# ── keys ──


@pytest.mark.parametrize("collation", ["C", "POSIX", "default"])
def test_the_last_number_of_a_key_is_found_by_an_index_whatever_its_collation(
    collation: str, shop: Shop, database: Database
) -> None:
    shop.do(f'CREATE TABLE shop.t (k text COLLATE "{collation}" PRIMARY KEY, v integer)')
    shop.do("INSERT INTO shop.t SELECT at, at FROM generate_series(1, 2000) AS at")
    with logged(database, "shop.t") as (source, _):
        shop.do('UPDATE shop.t SET v = 2; ANALYZE shop.t, tidegate_log."shop.t"')
        with psycopg.connect(shop.url) as reader:
            change_log.rows_within(reader, source.table, source.shape(), KeyRange())
            asked = "SELECT seq_scan FROM pg_stat_xact_user_tables WHERE relname = 'shop.t'"
            assert reader.execute(asked).fetchone() == (0,)


# ── rights ──


def test_what_a_writer_has_of_its_own_does_not_run_with_the_rights_of_the_log(
    shop: Shop, database: Database
) -> None:
    shop.add(1, 1)
    shop.do("CREATE TABLE public.ran (as_whom text); GRANT INSERT ON public.ran TO public")
    rights = "GRANT USAGE ON SCHEMA shop TO mallory; GRANT ALL ON shop.articles TO mallory"
    with logged(database, "shop.articles") as (source, offset), role(shop, "mallory", rights):
        shop.do(
            "SET SESSION AUTHORIZATION mallory;"
            "CREATE FUNCTION pg_temp.spy(it pg_catalog.text) RETURNS boolean LANGUAGE sql AS"
            " 'INSERT INTO public.ran VALUES (current_user) RETURNING true';"
            "CREATE DOMAIN pg_temp.text AS pg_catalog.text CHECK (pg_temp.spy(value))"
            # In the same session, so that what is temporary is still there.
            "; UPDATE shop.articles SET title = 'x' WHERE id = 1"
        )
        assert keys(source, offset) == ["1"]
        assert shop.do("SELECT as_whom FROM public.ran") == []


def test_a_function_of_an_earlier_release_is_made_again_beside_writers(
    shop: Shop, database: Database
) -> None:
    function = 'FUNCTION tidegate_log."shop.articles"()'
    with logged(database, "shop.articles") as (source, _):
        shop.do(f"ALTER {function} SET search_path = pg_catalog")
        shop.do(f"COMMENT ON {function} IS NULL")
        with psycopg.connect(shop.url) as writer:
            writer.execute("INSERT INTO shop.articles (id, title) VALUES (1, 'x')")
            source.start_log(bound=0.0)
    (settings,) = shop.do("SELECT proconfig FROM pg_proc WHERE proname = 'shop.articles'")
    assert settings == (["search_path=pg_catalog, pg_temp", "row_security=off"],)


def test_a_role_needs_no_right_to_make_a_schema_that_is_there(
    shop: Shop, database: Database
) -> None:
    rights = (
        "CREATE SCHEMA tidegate_log AUTHORIZATION owner_of_shop",
        "ALTER SCHEMA shop OWNER TO owner_of_shop",
        "ALTER TABLE shop.articles OWNER TO owner_of_shop",
    )
    with role(shop, "owner_of_shop", *rights):
        url = make_conninfo(shop.url, options="-c role=owner_of_shop")
        with PostgresTable("shop.articles", url=url).open(database) as source:
            offset = source.start_log()
            shop.add(1, 1)
            assert keys(source, offset) == ["1"]


# ── another server ──


def test_what_another_server_has_logged_is_forgotten(shop: Shop, database: Database) -> None:
    with SOURCE.open(database) as source:
        source.start_log()
        shop.do("INSERT INTO tidegate_log.\"shop.articles\" (xid, key) VALUES ('999999999', '{7}')")
        offset = source.start_log()
        assert source.lag(offset).changes == 0
        assert source.pending_among(offset, [("7",)]) == set()


def test_a_log_that_is_dropped_logs_nothing(shop: Shop, database: Database) -> None:
    with logged(database, "shop.articles") as (source, _):
        database.transact(lambda c: change_capture.drop_log(c, source.table))
        shop.add(1, 1)
    assert shop.do("SELECT 1 FROM pg_trigger WHERE tgname LIKE 'tidegate%'") == []
