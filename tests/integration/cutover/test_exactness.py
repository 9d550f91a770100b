"""Tables of all kinds, changed in sessions of all kinds: an index is as its table."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
import pytest

from tests.integration.cutover.conftest import Shop
from tidegate.cutover import PostgresTable, PostgresTarget
from tidegate.cutover.change_consumer import ChangeApplier
from tidegate.cutover.values import Portion
from tidegate.cutover.verify import verify
from tidegate.store import Database
from tidegate.store.cutover import change_log
from tidegate.store.cutover.tables import BLOCK, KeyRange

TARGET = PostgresTarget("search.things")


@dataclass(frozen=True)
class Case:
    """A table, what is in it, and what is done to it by others while it is followed."""

    made: str
    rows: str
    changes: tuple[str, ...]
    table: str = "shop.t"


CASES = {
    "times, written in another zone": Case(
        "CREATE TABLE shop.t (k timestamptz PRIMARY KEY, v integer)",
        "INSERT INTO shop.t VALUES ('2026-03-02 10:00Z', 1)",
        ("SET timezone = 'Asia/Tokyo'; SET datestyle = 'SQL, DMY'; UPDATE shop.t SET v = 2",),
    ),
    "numbers, written with fewer digits": Case(
        "CREATE TABLE shop.t (k float8 PRIMARY KEY, v integer)",
        "INSERT INTO shop.t VALUES (0.30000000000000004, 1)",
        ("SET extra_float_digits = 0; UPDATE shop.t SET v = 2",),
    ),
    "bytes, written in another form": Case(
        "CREATE TABLE shop.t (k bytea PRIMARY KEY, v integer)",
        "INSERT INTO shop.t VALUES ('\\x5c00', 1)",
        ("SET bytea_output = 'escape'; UPDATE shop.t SET v = 2",),
    ),
    "keys that are equal and look different": Case(
        "CREATE TABLE shop.t (k numeric PRIMARY KEY, v integer)",
        "INSERT INTO shop.t VALUES (1.0, 1), (2, 1)",
        (
            "UPDATE shop.t SET k = 1.00 WHERE k = 1",
            "DELETE FROM shop.t WHERE k = 1",
            "INSERT INTO shop.t VALUES (1.000, 8)",
        ),
    ),
    "keys of several columns": Case(
        "CREATE TABLE shop.t (a text, b uuid, v integer[], PRIMARY KEY (b, a))",
        "INSERT INTO shop.t SELECT a, gen_random_uuid() FROM (VALUES ('x'), (''), ('\"{},')) i (a)",
        ("UPDATE shop.t SET v = '{1,NULL}'", "UPDATE shop.t SET a = 'z' WHERE a = ''"),
    ),
    "keys of several collations": Case(
        'CREATE TABLE shop.t (a text COLLATE "C", b text COLLATE "POSIX", c text, v integer,'
        " PRIMARY KEY (a, b, c))",
        "INSERT INTO shop.t VALUES ('x', 'y', 'z', 1), ('X', 'Y', 'Z', 2), ('ä', 'ö', 'ü', 3)",
        ("UPDATE shop.t SET v = 9", "UPDATE shop.t SET b = 'é' WHERE a = 'x'", "TRUNCATE shop.t"),
    ),
    "keys that include other columns": Case(
        "CREATE TABLE shop.t (v text, k integer, PRIMARY KEY (k) INCLUDE (v))",
        "INSERT INTO shop.t VALUES (NULL, 1), ('x', 2)",
        ("UPDATE shop.t SET v = 'y'", "UPDATE shop.t SET v = NULL", "DELETE FROM shop.t"),
    ),
    "names that would end a text": Case(
        'CREATE TABLE shop."$body$\\\'$tidegate_log$" ("$body$" integer PRIMARY KEY)',
        'INSERT INTO shop."$body$\\\'$tidegate_log$" VALUES (1), (2)',
        ('UPDATE shop."$body$\\\'$tidegate_log$" SET "$body$" = 3 WHERE "$body$" = 1',
         'TRUNCATE shop."$body$\\\'$tidegate_log$"'),
        "shop.$body$\\'$tidegate_log$",
    ),
    "names with signs that mean something": Case(
        'CREATE TABLE shop."t%s{x}$$" ("k%s$$" text PRIMARY KEY, "v%(x)s" integer, "{b}" integer)',
        'INSERT INTO shop."t%s{x}$$" VALUES (\'50%\', 1), (\'a%s\', 2), (\'{b}\', 3)',
        ('UPDATE shop."t%s{x}$$" SET "{b}" = 9', 'TRUNCATE shop."t%s{x}$$"'),
        "shop.t%s{x}$$",
    ),
    "a name that triggers use": Case(
        "CREATE TABLE shop.t (tg_op integer PRIMARY KEY)",
        "INSERT INTO shop.t VALUES (1)",
        ("TRUNCATE shop.t",),
    ),
    "values that may not be missing": Case(
        "CREATE DOMAIN shop.name AS varchar(9) NOT NULL; CREATE DOMAIN shop.nick AS shop.name;"
        "CREATE TABLE shop.t (k integer PRIMARY KEY, v shop.nick)",
        "INSERT INTO shop.t VALUES (1, 'x'), (2, 'y')",
        ("DELETE FROM shop.t WHERE k = 1",),
    ),
    "text that other formats know as an end": Case(
        "CREATE TABLE shop.t (k integer PRIMARY KEY, v text, w json)",
        "INSERT INTO shop.t VALUES (1, E'x\\n\\\\.\\ny', '{\"a\": \"\\u0000\"}'), "
        "(2, E'\\\\.', NULL), (3, E'a\\rb', '[]'), (4, E'\\r\\n\"', '1'), "
        "(5, '', '1'), (6, NULL, '1 ')",
        ("UPDATE shop.t SET v = v || ''", "DELETE FROM shop.t WHERE k = 1"),
    ),
    "partitions, one of them emptied alone": Case(
        "CREATE TABLE shop.t (k integer PRIMARY KEY, v integer) PARTITION BY RANGE (k);"
        "CREATE TABLE shop.t1 PARTITION OF shop.t FOR VALUES FROM (0) TO (10);"
        "CREATE TABLE shop.t2 PARTITION OF shop.t FOR VALUES FROM (10) TO (20)",
        "INSERT INTO shop.t VALUES (1, 1), (11, 1)",
        (
            "UPDATE shop.t SET k = 12 WHERE k = 1",
            "INSERT INTO shop.t1 VALUES (3, 3)",
            "TRUNCATE shop.t2",
        ),
    ),
    "rows that go with others": Case(
        "CREATE TABLE shop.owner (k integer PRIMARY KEY); CREATE TABLE shop.t (k integer PRIMARY"
        " KEY, of integer REFERENCES shop.owner ON DELETE CASCADE ON UPDATE CASCADE)",
        "INSERT INTO shop.owner VALUES (1), (2); INSERT INTO shop.t VALUES (1, 1), (2, 2)",
        ("UPDATE shop.owner SET k = 3 WHERE k = 2", "DELETE FROM shop.owner WHERE k = 1"),
    ),
    "emptied and filled again at once": Case(
        "CREATE TABLE shop.t (k integer PRIMARY KEY, v integer)",
        "INSERT INTO shop.t VALUES (1, 1), (2, 2)",
        ("INSERT INTO shop.t VALUES (3); TRUNCATE shop.t; INSERT INTO shop.t VALUES (2, 5)",),
    ),
    "a value that is longer than what is read at once": Case(
        "CREATE TABLE shop.t (k integer PRIMARY KEY, v text)",
        f"INSERT INTO shop.t VALUES (1, repeat('x', {BLOCK + 4096}))",
        (),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_an_index_is_as_its_table(name: str, shop: Shop, database: Database) -> None:
    case = CASES[name]
    shop.do(case.made)
    shop.do(case.rows)
    with PostgresTable(case.table).open(database) as source, TARGET.open(database) as indexes:
        offset = source.start_log()
        indexes.create("v1", source.shape())
        follower = ChangeApplier(source, indexes, "v1", offset)
        shape = source.shape(indexes.columns("v1"))
        for piece in source.pieces(KeyRange(), 2):
            rows = database.transact(
                lambda c, at=piece: change_log.rows_within(c, source.table, shape, at)  # type: ignore[misc]
            )
            indexes.write("v1", rows)
        for change in case.changes:
            shop.do(change)
            assert follower.catch_up() > 0
        found = verify(source, indexes, Portion("v1", None, None), lambda: follower.offset)
        assert found.pending == 0
        unversioned = "SELECT 1 FROM search.v1 WHERE tidegate_version = 0 AND tidegate_deleted"
        assert shop.do(unversioned) == []


def test_a_change_has_its_number_whatever_the_session_of_its_writer(
    shop: Shop, database: Database
) -> None:
    shop.do("CREATE TABLE shop.t (k timestamptz PRIMARY KEY)")
    with PostgresTable("shop.t").open(database) as source:
        offset = source.start_log()
        shop.do("SET timezone = 'Asia/Tokyo'; INSERT INTO shop.t VALUES ('2026-03-02 10:00Z')")
        (change,) = source.changes(offset, -1, 10).rows
        rows = source.rows_of([change.key], source.shape())
    assert rows[change_log.VERSION].to_pylist() == [str(change.number)]


def test_a_table_is_not_emptied_by_a_role_that_does_not_see_all_its_rows(
    shop: Shop, database: Database
) -> None:
    shop.add(1, 3)
    with PostgresTable("shop.articles").open(database) as source:
        source.start_log()
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="READ COMMITTED"):
            shop.do("BEGIN ISOLATION LEVEL REPEATABLE READ; TRUNCATE shop.articles; COMMIT")
    assert len(shop.do("SELECT 1 FROM shop.articles")) == 3


def test_triggers_that_were_turned_off_are_turned_on_by_the_next_cutover(
    shop: Shop, database: Database
) -> None:
    with PostgresTable("shop.articles").open(database) as source:
        source.start_log()
        shop.do("ALTER TABLE shop.articles DISABLE TRIGGER ALL")
        offset = source.start_log()
        shop.add(1, 1)
        assert len(source.changes(offset, -1, 10).rows) == 1


def test_rows_that_a_policy_hides_are_not_taken_for_deleted(shop: Shop, database: Database) -> None:
    shop.add(1, 1)
    shop.do(
        "CREATE ROLE guest_of_shop; GRANT USAGE ON SCHEMA shop TO guest_of_shop;"
        "GRANT SELECT ON shop.articles TO guest_of_shop;"
        "ALTER TABLE shop.articles ENABLE ROW LEVEL SECURITY"
    )
    try:
        with PostgresTable("shop.articles").open(database) as source:
            source.start_log()
            shape, table = source.shape(), source.table
        shop.do("GRANT USAGE ON SCHEMA tidegate_log TO guest_of_shop")
        shop.do("GRANT SELECT ON ALL TABLES IN SCHEMA tidegate_log TO guest_of_shop")
        with psycopg.connect(shop.url) as connection:
            connection.execute("SET ROLE guest_of_shop")
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
                change_log.rows_of(connection, table, shape, [("1",)])
    finally:
        shop.do("DROP OWNED BY guest_of_shop; DROP ROLE guest_of_shop")
