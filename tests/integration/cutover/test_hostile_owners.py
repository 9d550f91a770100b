"""The owner of a followed table, and of its types, gets none of the rights of Tidegate's role."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.integration.cutover.conftest import Shop
from tidegate.cutover import PostgresTable, PostgresTarget
from tidegate.cutover.change_consumer import ChangeApplier
from tidegate.errors import CodeRefused, IndexDiffers, TypeRefused, WriterTooStrong
from tidegate.store import Database
from tidegate.store.cutover import change_log
from tidegate.store.cutover.log_writer import WRITER
from tidegate.store.cutover.table_settings import set_read_only
from tidegate.store.cutover.tables import KeyRange, TableName

OWNER = "mallory"
TARGET = PostgresTarget("search.things")
SETTING = f"""
CREATE ROLE {OWNER};
CREATE SCHEMA hers AUTHORIZATION {OWNER};
GRANT CREATE ON SCHEMA public TO {OWNER};
CREATE TABLE public.ran (as_whom text NOT NULL, what text NOT NULL);
GRANT INSERT ON public.ran TO PUBLIC;
SET SESSION AUTHORIZATION {OWNER};
CREATE FUNCTION hers.ran(what text) RETURNS text LANGUAGE plpgsql AS
    'BEGIN INSERT INTO public.ran VALUES (current_user, what); RETURN what; END';
CREATE FUNCTION hers.sly(what text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS
    'BEGIN RETURN hers.ran(what); END';
CREATE TYPE hers.mood AS ENUM ('calm', 'wild');
CREATE FUNCTION hers.mood_text(it hers.mood) RETURNS text LANGUAGE plpgsql IMMUTABLE AS
    $$ BEGIN RETURN hers.sly('cast'); END $$;
CREATE CAST (hers.mood AS text) WITH FUNCTION hers.mood_text(hers.mood) AS IMPLICIT;
"""
TABLE = (
    f"CREATE TABLE hers.t (k integer PRIMARY KEY, v hers.mood);ALTER TABLE hers.t OWNER TO {OWNER}"
)


@pytest.fixture
def hers(shop: Shop) -> Iterator[Shop]:
    """A schema whose owner has no rights beyond it, and writes down as whom her code runs."""
    shop.do(SETTING)
    shop.do(TABLE)
    yield shop
    shop.do(f"DROP OWNED BY {OWNER} CASCADE; DROP ROLE {OWNER}")


def as_owner(shop: Shop, statements: str) -> None:
    shop.do(f"SET SESSION AUTHORIZATION {OWNER}; {statements}")


def strangers(shop: Shop) -> list[tuple[str, str]]:
    """As whom else her code ran."""
    return shop.do("SELECT DISTINCT as_whom, what FROM public.ran WHERE as_whom <> %s", OWNER)


@pytest.mark.parametrize(
    "change", ["INSERT INTO hers.t VALUES ('wild')", "DELETE FROM hers.t", "TRUNCATE hers.t"]
)
def test_the_owner_of_a_followed_table_does_not_become_superuser_by_changing_it(
    change: str, hers: Shop, database: Database
) -> None:
    as_owner(
        hers,
        "CREATE OR REPLACE FUNCTION hers.ran(what text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN"
        f" IF current_user <> '{OWNER}' THEN ALTER ROLE {OWNER} SUPERUSER; END IF; RETURN what;"
        " END $$",
    )
    with PostgresTable("hers.t").open(database) as source:
        source.start_log()
    # The type of the key is hers to change after the log has begun.
    as_owner(
        hers,
        "ALTER TABLE hers.t ALTER k TYPE hers.mood USING 'calm';INSERT INTO hers.t VALUES ('calm')",
    )
    as_owner(hers, change)
    is_super = hers.do("SELECT rolsuper FROM pg_roles WHERE rolname = %s", OWNER)
    assert is_super == [(False,)]


def test_columns_are_read_without_the_casts_of_their_types(hers: Shop, database: Database) -> None:
    with PostgresTable("hers.t").open(database) as source, TARGET.open(database) as indexes:
        offset = source.start_log()
        as_owner(hers, "INSERT INTO hers.t VALUES (1, 'calm'), (2, 'wild'), (3, NULL)")
        indexes.create("v1", source.shape())
        assert ChangeApplier(source, indexes, "v1", offset).catch_up() == 3
        shape = source.shape(indexes.columns("v1"))
        rows = database.transact(
            lambda c: change_log.rows_within(c, source.table, shape, KeyRange())
        )
        assert source.digest(KeyRange(), shape) == indexes.digest("v1", KeyRange(), shape)
    assert rows["v"].to_pylist() == ["calm", "wild", None]
    assert strangers(hers) == []


def test_rows_are_read_by_the_functions_and_operators_of_postgresql(
    hers: Shop, database: Database
) -> None:
    as_owner(
        hers,
        "CREATE FUNCTION public.format(text, hers.mood) RETURNS text LANGUAGE sql AS"
        " $$ SELECT hers.ran('format') $$;"
        "CREATE FUNCTION hers.eq(integer, integer) RETURNS boolean LANGUAGE sql AS"
        " $$ SELECT hers.ran('operator') IS NOT NULL $$;"
        "CREATE OPERATOR public.= (FUNCTION = hers.eq, LEFTARG = integer, RIGHTARG = integer);"
        "CREATE OPERATOR public.> (FUNCTION = hers.eq, LEFTARG = integer, RIGHTARG = integer)",
    )
    with PostgresTable("hers.t").open(database) as source:
        source.start_log()
        as_owner(hers, "INSERT INTO hers.t VALUES (1, 'calm'), (2, 'wild')")
        shape = source.shape()
        hers.do(
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = public, pg_catalog',"
            " current_database()); END $$"
        )
        with psycopg.connect(hers.url) as reader:
            found = change_log.rows_of(reader, source.table, shape, [("1",), ("9",)])
            within = change_log.rows_within(reader, source.table, shape, KeyRange(("1",), None))
    assert (found.num_rows, within.num_rows) == (2, 1)
    assert strangers(hers) == []


def test_a_view_in_the_place_of_a_table_is_not_read(hers: Shop, database: Database) -> None:
    with PostgresTable("hers.t").open(database) as source:
        source.start_log()
        shape = source.shape()
        as_owner(
            hers,
            "ALTER TABLE hers.t RENAME TO old;"
            "CREATE VIEW hers.t AS SELECT k, hers.ran('view') AS v FROM hers.old;"
            "INSERT INTO hers.old VALUES (1, 'calm')",
        )
        with pytest.raises(Exception, match=r"hers\.t"):
            source.rows_of([("1",)], shape)
    assert strangers(hers) == []


def test_a_view_that_comes_between_two_statements_is_not_read(
    hers: Shop, database: Database
) -> None:
    as_owner(hers, "CREATE VIEW hers.seen AS SELECT k, hers.ran('view') AS v FROM hers.t")
    as_owner(hers, "INSERT INTO hers.t VALUES (1, 'calm')")
    with psycopg.connect(hers.url) as reader:
        set_read_only(reader)
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
            reader.execute("SELECT * FROM hers.seen")
    assert strangers(hers) == []


def test_a_key_that_becomes_one_of_her_types_is_not_compared(
    hers: Shop, database: Database
) -> None:
    as_owner(
        hers,
        "CREATE FUNCTION hers.mood_number(it hers.mood) RETURNS integer LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM hers.ran('implicit'); RETURN 1; END $$;"
        "CREATE CAST (hers.mood AS integer) WITH FUNCTION hers.mood_number(hers.mood) AS IMPLICIT",
    )
    with PostgresTable("hers.t").open(database) as source:
        source.start_log()
        shape = source.shape()
        as_owner(hers, "ALTER TABLE hers.t ALTER k TYPE hers.mood USING 'calm'")
        as_owner(hers, "INSERT INTO hers.t VALUES ('calm', 'calm')")
        with pytest.raises(TypeRefused) as refused:
            source.rows_of([("1",)], shape)
    assert (refused.value.column, refused.value.type) == ("k", "hers.mood")
    assert strangers(hers) == []


@pytest.mark.parametrize("type_", ["hers.mood", "hers.mood[]", "hers.pair"])
def test_a_key_of_a_type_of_its_owner_is_refused(
    type_: str, hers: Shop, database: Database
) -> None:
    as_owner(
        hers,
        f"CREATE TYPE hers.pair AS (a integer); CREATE TABLE hers.u (k {type_} PRIMARY KEY)",
    )
    with PostgresTable("hers.u").open(database) as source, pytest.raises(TypeRefused) as refused:
        source.start_log()
    assert refused.value.column == "k"


@pytest.mark.parametrize("type_", ["hers.checked[]", "hers.pair", "hers.pairs"])
def test_values_that_its_owner_would_check_are_refused(
    type_: str, hers: Shop, database: Database
) -> None:
    as_owner(
        hers,
        "CREATE DOMAIN hers.checked AS text CHECK (hers.ran(value) IS NOT NULL);"
        "CREATE TYPE hers.pair AS (a integer, b hers.checked);"
        "CREATE DOMAIN hers.pairs AS hers.pair[];"
        f"CREATE TABLE hers.u (k integer PRIMARY KEY, v {type_})",
    )
    with PostgresTable("hers.u").open(database) as source, pytest.raises(TypeRefused) as refused:
        source.shape()
    assert refused.value.column == "v"
    with PostgresTable("hers.u", columns=("k",)).open(database) as source:
        assert [it.name for it in source.shape().columns] == ["k"]


def test_a_domain_of_its_owner_is_read_as_what_it_is_made_of(
    hers: Shop, database: Database
) -> None:
    as_owner(
        hers,
        "CREATE DOMAIN hers.checked AS integer CHECK (hers.ran(value::text) IS NOT NULL);"
        "CREATE TABLE hers.u (k hers.checked PRIMARY KEY, v hers.checked)",
    )
    with PostgresTable("hers.u").open(database) as source, TARGET.open(database) as indexes:
        offset = source.start_log()
        as_owner(hers, "INSERT INTO hers.u VALUES (1, 2)")
        indexes.create("v1", source.shape())
        assert ChangeApplier(source, indexes, "v1", offset).catch_up() == 1
        assert len(source.checksums(KeyRange(("0",), ("5",)), source.shape())) == 1
    assert strangers(hers) == []


def test_a_column_of_her_type_is_not_searched(hers: Shop, database: Database) -> None:
    target = PostgresTarget("search.things", text=("v",))
    with (
        PostgresTable("hers.t").open(database) as source,
        target.open(database) as indexes,
        pytest.raises(TypeRefused) as refused,
    ):
        indexes.create("v1", source.shape())
    assert refused.value.column == "v"
    assert strangers(hers) == []


@pytest.mark.parametrize(
    "made",
    [
        "CREATE INDEX ON hers.t ((hers.sly('planned')))",
        "CREATE INDEX ON hers.t (k) WHERE hers.sly('planned') IS NULL",
        "CREATE STATISTICS hers.s ON k, (hers.sly('planned') || k) FROM hers.t",
    ],
)
def test_a_superuser_does_not_plan_with_expressions_of_the_owner(
    made: str, hers: Shop, database: Database
) -> None:
    as_owner(hers, made)
    with PostgresTable("hers.t").open(database) as source, pytest.raises(CodeRefused) as refused:
        source.start_log()
    assert refused.value.function == "hers.sly(text)"
    assert refused.value.owner == OWNER
    assert strangers(hers) == []


def test_a_table_in_the_place_of_an_index_is_not_written_to(hers: Shop, database: Database) -> None:
    with PostgresTable("hers.t").open(database) as source, TARGET.open(database) as indexes:
        source.start_log()
        indexes.create("v1", source.shape())
        identity, columns = indexes.identity("v1"), indexes.columns("v1")
        hers.do(f"ALTER SCHEMA search OWNER TO {OWNER}")
        comment = identity.partition("(")[2].removesuffix(")")
        as_owner(
            hers,
            "DROP TABLE search.v1 CASCADE;"
            "CREATE TABLE search.v1 (k integer PRIMARY KEY, v hers.mood, tidegate_version bigint"
            " DEFAULT length(hers.ran('default')), tidegate_deleted boolean);"
            f"COMMENT ON TABLE search.v1 IS '{comment}';"
            "CREATE FUNCTION hers.note() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN PERFORM hers.ran('trigger'); RETURN NEW; END $$;"
            "CREATE TRIGGER note BEFORE INSERT ON search.v1"
            " FOR EACH ROW EXECUTE FUNCTION hers.note();"
            "INSERT INTO hers.t VALUES (1, 'calm')",
        )
        rows = source.rows_of([("1",)], source.shape(columns))
        with pytest.raises(IndexDiffers, match=OWNER):
            indexes.write("v1", rows, identity)
    assert strangers(hers) == []


# ── the role that writes the log ──


def test_changes_are_logged_by_a_role_that_may_do_nothing_else(
    hers: Shop, database: Database
) -> None:
    with PostgresTable("hers.t").open(database) as source:
        source.start_log()
    log = 'tidegate_log."hers.t"'
    owner = hers.do("SELECT pg_get_userbyid(proowner) FROM pg_proc WHERE prosecdef")
    assert owner == [(WRITER,)]
    role = hers.do(
        "SELECT rolsuper OR rolcanlogin OR rolcreaterole OR rolcreatedb OR rolbypassrls OR"
        " rolreplication FROM pg_roles WHERE rolname = %s",
        WRITER,
    )
    assert role == [(False,)]
    rights = hers.do(
        "SELECT right_ FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE'])"
        " AS right_ WHERE has_table_privilege(%s, %s, right_)",
        WRITER,
        log,
    )
    assert rights == [("INSERT",)]
    columns = hers.do(
        "SELECT name FROM unnest(ARRAY['k', 'v']) AS name"
        " WHERE has_column_privilege(%s, 'hers.t', name, 'SELECT')",
        WRITER,
    )
    assert columns == [("k",)]
    assert hers.do("SELECT has_schema_privilege(%s, 'tidegate_log', 'CREATE')", WRITER) == [
        (False,)
    ]


def test_only_the_owner_of_a_table_can_use_the_function_of_its_log(
    hers: Shop, database: Database
) -> None:
    with PostgresTable("hers.t").open(database) as source:
        source.start_log()
    hers.do("CREATE ROLE bystander; GRANT USAGE ON SCHEMA tidegate_log TO bystander")
    try:
        may = hers.do(
            "SELECT role, has_function_privilege(role, 'tidegate_log.\"hers.t\"()', 'EXECUTE')"
            " FROM unnest(ARRAY['bystander', %s]) AS role ORDER BY role",
            OWNER,
        )
        assert may == [("bystander", False), (OWNER, True)]
    finally:
        hers.do("DROP OWNED BY bystander; DROP ROLE bystander")


def test_the_owner_of_a_partitioned_table_adds_partitions_while_it_is_followed(
    hers: Shop, database: Database
) -> None:
    as_owner(
        hers,
        "CREATE TABLE hers.p (k integer PRIMARY KEY) PARTITION BY RANGE (k);"
        "CREATE TABLE hers.p1 PARTITION OF hers.p FOR VALUES FROM (0) TO (10)",
    )
    with PostgresTable("hers.p").open(database) as source:
        offset = source.start_log()
        as_owner(
            hers,
            "CREATE TABLE hers.p2 PARTITION OF hers.p FOR VALUES FROM (10) TO (20);"
            "INSERT INTO hers.p VALUES (1), (11); TRUNCATE hers.p1; TRUNCATE hers.p",
        )
        found = [it.key for it in source.changes(offset, -1, 100).rows]
    assert found == [("1",), ("11",), ("1",), ("11",)]


def test_a_role_that_is_no_superuser_hands_the_function_over_where_it_may(
    hers: Shop, database: Database
) -> None:
    with PostgresTable("shop.articles").open(database) as source:
        source.start_log()  # which makes the writer
    hers.do(f"CREATE SCHEMA IF NOT EXISTS tidegate_log; GRANT {WRITER} TO {OWNER}")
    hers.do(f"ALTER SCHEMA tidegate_log OWNER TO {OWNER}; DROP TABLE tidegate_log.consumer")
    url = make_conninfo(hers.url, options=f"-c role={OWNER}")
    with PostgresTable("hers.t", url=url).open(database) as source:
        offset = source.start_log()
        as_owner(hers, "INSERT INTO hers.t VALUES (1, 'calm'); TRUNCATE hers.t")
        assert len(source.changes(offset, -1, 10).rows) == 2
    owner = hers.do("SELECT pg_get_userbyid(proowner) FROM pg_proc WHERE proname = 'hers.t'")
    assert owner == [(WRITER,)]


def test_a_writer_with_other_rights_is_refused(hers: Shop, database: Database) -> None:
    with PostgresTable("hers.t").open(database) as source:
        source.start_log()
        hers.do(f"ALTER ROLE {WRITER} LOGIN")
        try:
            with pytest.raises(WriterTooStrong) as refused:
                source.start_log()
        finally:
            hers.do(f"ALTER ROLE {WRITER} NOLOGIN")
    assert refused.value.role == WRITER


def test_a_table_whose_policies_hide_rows_is_not_truncated_unseen(
    hers: Shop, database: Database
) -> None:
    with PostgresTable("hers.t").open(database) as source:
        source.start_log()
    as_owner(hers, "INSERT INTO hers.t VALUES (1); ALTER TABLE hers.t ENABLE ROW LEVEL SECURITY")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
        as_owner(hers, "TRUNCATE hers.t")


def test_following_the_table_of_another_role_as_superuser_is_warned_of(
    hers: Shop, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    for table in ("shop.articles", "hers.t"):
        with PostgresTable(table).open(database) as source:
            source.start_log()
    (warning,) = [it.getMessage() for it in caplog.records if "superuser" in it.getMessage()]
    assert "hers.t" in warning
    assert OWNER in warning


def test_names_of_tables_are_not_taken_for_more_than_names(hers: Shop, database: Database) -> None:
    name = 't"; ALTER ROLE mallory SUPERUSER; --'
    quoted = TableName("hers", name).sql.as_string(None)
    as_owner(hers, f"CREATE TABLE {quoted} (k integer PRIMARY KEY)")
    with PostgresTable(f"hers.{name}").open(database) as source:
        offset = source.start_log()
        as_owner(hers, f"INSERT INTO {quoted} VALUES (1); TRUNCATE {quoted}")
        assert len(source.changes(offset, -1, 10).rows) == 2
    assert hers.do("SELECT rolsuper FROM pg_roles WHERE rolname = %s", OWNER) == [(False,)]
