"""The database: where it comes from, how its schema comes about, and that losing it is survived."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event, Thread

import psycopg
import pytest

from tests.waiting import wait_until
from tidegate import __version__
from tidegate.errors import DatabaseUnreachable, SchemaTooNew
from tidegate.faults import VARIABLE as CRASH_AT
from tidegate.store import Database, EmbeddedPostgres, open_database
from tidegate.store.core import migrations as migrating
from tidegate.store.core.database import VARIABLE
from tidegate.store.core.functions import create_functions
from tidegate.store.core.migrations import Migration, current, migrate, migrations
from tidegate.store.core.postgres_binaries import programs

MIGRATE = "import sys\nfrom tidegate.store import Database\nDatabase(sys.argv[1]).open().close()\n"


def dump(url: str) -> list[str]:
    command = [str(programs() / "pg_dump"), "--schema-only", "--no-owner", url]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [line for line in text.splitlines() if not re.match(r"--|\\|$", line)]


def test_an_upgraded_database_has_the_schema_of_a_new_one(
    url: str, empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = migrations()[-1].number
    later = b"ALTER TABLE tidegate.plan ADD COLUMN later text"
    known = (*migrations(), Migration(last + 1, "later", later))
    monkeypatch.setattr(migrating, "migrations", lambda: known)
    for each in (url, empty_url):
        with psycopg.connect(each) as connection:
            migrate(connection, "test")
            assert current(connection) == last + 1
    assert dump(url) == dump(empty_url)
    assert any("later text" in line for line in dump(url))


def test_migrations_are_numbered_from_one_without_gaps() -> None:
    numbers = [migration.number for migration in migrations()]
    assert numbers == list(range(1, len(numbers) + 1))


def test_many_processes_may_migrate_at_once(empty_url: str) -> None:
    def open_and_close(_: int) -> None:
        Database(empty_url).open().close()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(open_and_close, range(8)))
    with psycopg.connect(empty_url) as connection:
        assert current(connection) == migrations()[-1].number


@pytest.mark.parametrize("nth", range(1, len(migrations()) + 1))
def test_a_crash_in_a_migration_leaves_the_one_before(empty_url: str, nth: int) -> None:
    crash = {CRASH_AT: f"migration.before_commit:{nth}"}
    command = [sys.executable, "-c", MIGRATE, empty_url]
    killed = subprocess.run(command, env=os.environ | crash, check=False, timeout=30)
    assert killed.returncode == -signal.SIGKILL
    with psycopg.connect(empty_url) as connection:
        assert current(connection) == nth - 1
        connection.rollback()
        migrate(connection, "test")
        assert current(connection) == migrations()[-1].number
        assert connection.execute("SELECT tidegate.flow_verdict(true, 0, 0, 0, 0, 0, 0)").fetchone()


def test_a_crash_while_functions_are_made_leaves_those_before(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE tidegate.function_version SET digest = 'of others'")
    command = [sys.executable, "-c", MIGRATE, url]
    crash = {CRASH_AT: "migration.before_commit"}
    killed = subprocess.run(command, env=os.environ | crash, check=False, timeout=30)
    assert killed.returncode == -signal.SIGKILL
    with psycopg.connect(url) as connection:
        digest = "SELECT digest FROM tidegate.function_version"
        assert connection.execute(digest).fetchone() == ("of others",)
        create_functions(connection)
        assert connection.execute(digest).fetchone() != ("of others",)


@pytest.mark.parametrize(
    ("release", "stays"), [("0.0.9", False), (__version__, False), ("999.0.0", True)]
)
def test_functions_of_other_files_are_replaced_unless_a_later_release_made_them(
    url: str, release: str, stays: bool
) -> None:
    replaced = (
        "CREATE OR REPLACE FUNCTION tidegate.flow_free(p_run tidegate.flow_run) RETURNS text"
        " LANGUAGE sql IMMUTABLE AS $$ SELECT 'other' $$"
    )
    asked = "SELECT tidegate.flow_free(NULL::tidegate.flow_run) = 'other'"
    with psycopg.connect(url) as connection:
        connection.execute(replaced.encode())
        connection.execute(
            "UPDATE tidegate.function_version SET release = %s, digest = 'x'", (release,)
        )
    Database(url).open().close()
    with psycopg.connect(url) as connection:
        assert connection.execute(asked.encode()).fetchone() == (stays,)
        assert connection.execute("SELECT count(*) FROM tidegate.function_version").fetchone() == (
            1,
        )


def test_a_database_of_a_later_version_is_refused(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("INSERT INTO tidegate.migration VALUES (9999, 'from_the_future')")
    with pytest.raises(SchemaTooNew) as refused:
        Database(url).open()
    assert refused.value.found == 9999


def test_a_given_url_comes_before_the_environment(url: str, tmp_path: Path) -> None:
    environment = {VARIABLE: "postgresql://nobody@127.0.0.1:1/nowhere"}
    with open_database(url, tmp_path, environment) as database:
        assert database.url == url
    with open_database(None, tmp_path, {VARIABLE: url}) as database:
        assert database.url == url
    assert list(tmp_path.iterdir()) == []


def test_without_a_url_the_folder_gets_an_embedded_server(deployment: Path) -> None:
    with open_database(None, deployment, {}) as database:
        assert database.transact(migration_count) == len(migrations())
    assert (deployment / "postgres" / "data").exists()


def test_a_database_that_does_not_answer_is_an_error_after_the_bound() -> None:
    with pytest.raises(DatabaseUnreachable) as unreachable:
        Database("postgresql://me:secret@127.0.0.1:1/shop", bound=0.3).open()
    assert unreachable.value.database == "shop on 127.0.0.1:1"
    assert "secret" not in str(unreachable.value)


def migration_count(connection: psycopg.Connection) -> int:
    row = connection.execute("SELECT count(*) FROM tidegate.migration").fetchone()
    assert row is not None
    return int(row[0])


def test_whether_a_database_answers_is_asked_on_a_connection_of_its_own(url: str) -> None:
    with Database(url, pool_size=1).open() as database:
        database.transact(lambda _: database.check(10.0))
    with pytest.raises(DatabaseUnreachable):
        Database("postgresql://127.0.0.1:1/nowhere").check(1.0)


def test_a_transaction_in_the_middle_of_a_restart_is_run_again_as_a_whole(
    database: Database, server: EmbeddedPostgres
) -> None:
    tries = []

    def work(connection: psycopg.Connection) -> int:
        tries.append(1)
        connection.execute("INSERT INTO tidegate.lease VALUES ('test', 'once', 'me', 1, now())")
        if len(tries) == 1:
            kill(server)
            server.ensure_running()
        row = connection.execute("SELECT count(*) FROM tidegate.lease").fetchone()
        assert row is not None
        return int(row[0])

    assert database.transact(work) == 1
    assert len(tries) > 1
    assert database.transact(migration_count) == len(migrations())


def test_an_error_of_the_work_itself_is_raised_at_once_and_changes_nothing(
    database: Database,
) -> None:
    def work(connection: psycopg.Connection) -> None:
        connection.execute("DELETE FROM tidegate.migration")
        connection.execute("SELECT 1/0")

    with pytest.raises(psycopg.errors.DivisionByZero):
        database.transact(work)
    assert database.transact(migration_count) == len(migrations())


def test_work_goes_on_while_the_server_is_killed_again_and_again(
    database: Database, server: EmbeddedPostgres
) -> None:
    done = Event()

    def write() -> None:
        for number in range(300):
            database.transact(partial(upsert, str(number)))
        done.set()

    writers = [Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    for _ in range(2):
        kill(server)
        server.ensure_running()
    for writer in writers:
        writer.join(60)
    assert done.is_set()
    rows = database.transact(lambda c: c.execute("SELECT key FROM tidegate.lease").fetchall())
    assert {int(key) for (key,) in rows} == set(range(300))


def upsert(key: str, connection: psycopg.Connection) -> None:
    connection.execute(
        "INSERT INTO tidegate.lease VALUES ('test', %s, 'me', 1, now()) ON CONFLICT DO NOTHING",
        (key,),
    )


def kill(server: EmbeddedPostgres) -> None:
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


def bound_time(url: str, setting: str, bound: str) -> None:
    """What an administrator may set for everybody."""
    with psycopg.connect(url, autocommit=True) as connection:
        asked = f"ALTER DATABASE {connection.info.dbname} SET {setting} = '{bound}'"
        connection.execute(asked.encode())


def test_a_connection_that_was_closed_for_its_silence_is_replaced(url: str) -> None:
    bound_time(url, "idle_session_timeout", "100ms")
    with Database(url).attach() as database, psycopg.connect(url, autocommit=True) as watching:
        watching.execute("SET idle_session_timeout = 0")
        database.transact(migration_count)
        asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        wait_until(lambda: watching.execute(asked.encode()).fetchone() == (1,))
        assert database.transact(migration_count) == len(migrations())


@pytest.mark.parametrize("setting", ["statement_timeout", "lock_timeout"])
def test_whoever_waits_for_a_lock_longer_than_is_allowed_tries_again(
    url: str, setting: str
) -> None:
    bound_time(url, setting, "200ms")
    tries = []

    with psycopg.connect(url) as holder, Database(url).attach() as database:
        holder.execute("LOCK TABLE tidegate.migration")

        def work(connection: psycopg.Connection) -> int:
            tries.append(1)
            if len(tries) == 3:
                holder.rollback()
            return migration_count(connection)

        assert database.transact(work) == len(migrations())
    assert len(tries) == 3


def test_a_time_that_is_never_enough_is_an_error_after_the_bound(url: str) -> None:
    bound_time(url, "statement_timeout", "100ms")
    with Database(url, bound=1.0).attach() as database, pytest.raises(DatabaseUnreachable):
        database.transact(lambda connection: connection.execute("SELECT pg_sleep(10)"))


def test_a_database_that_answers_is_checked_again_only_after_a_moment(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.check(2.0)
    monkeypatch.setattr(database, "url", "postgresql://127.0.0.1:1/none")
    database.check(2.0)
    monkeypatch.setattr(database, "_checked_until", 0.0)
    with pytest.raises(DatabaseUnreachable):
        database.check(2.0)


def test_a_database_that_takes_connections_and_says_nothing_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/none"
        with pytest.raises(DatabaseUnreachable):
            Database(url).check(2.0)
