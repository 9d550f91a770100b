"""What integration tests share, because starting it costs more than most of them.

One PostgreSQL, from which every test gets its own database, cloned quickly; one Spark session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tidegate.spark import Session, open_session
from tidegate.store import Database, EmbeddedPostgres

TEMPLATE = "tidegate_template"
NO_SYNC = {"fsync": "off", "full_page_writes": "off"}
"""Safe as long as the machine lives: a killed server still finds what it had committed."""

SPARK = {
    "spark.sql.shuffle.partitions": "2",
    # Compiling code for a job takes longer than a handful of rows; Connect's test compiles.
    "spark.sql.codegen.wholeStage": "false",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[Session]:
    session = open_session("local[2]", settings=SPARK)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedPostgres]:
    with temporary_folder() as folder:
        with EmbeddedPostgres(folder / "postgres", settings=NO_SYNC) as server:
            yield server
        server.wait_stopped()


@pytest.fixture
def deployment() -> Iterator[Path]:
    """An empty folder for a deployment; its embedded server must be gone when the test is over."""
    with temporary_folder() as folder:
        yield folder
        if (folder / "postgres").exists():
            EmbeddedPostgres(folder / "postgres").wait_stopped()


@pytest.fixture(scope="session")
def initialised() -> Iterator[Path]:
    """The folder of an embedded server that was stopped; to copy, which is quicker than initdb."""
    with temporary_folder() as folder:
        with EmbeddedPostgres(folder / "postgres", settings=NO_SYNC) as server:
            pass
        server.wait_stopped()
        yield folder / "postgres"


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Not one of pytest's: every pytest that starts as root closes those to other users."""
    with TemporaryDirectory(prefix="tidegate-") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def new_database(server: EmbeddedPostgres) -> Callable[[str], str]:
    """Makes a database, empty or as a clone, and says where it is."""
    numbers = count()

    def make(template: str) -> str:
        name = f"test_{next(numbers)}"
        # Without syncing, copying files takes an eighth of the time of logging every page.
        sql = f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY"
        _administer(server, sql)
        return make_conninfo(server.url, dbname=name)

    return make


@contextmanager
def _dropped(server: EmbeddedPostgres, url: str) -> Iterator[str]:
    """A database until the end of a block: a thousand of them take minutes to remove at once."""
    yield url
    _administer(server, f"DROP DATABASE {conninfo_to_dict(url)['dbname']} WITH (FORCE)")


def _administer(server: EmbeddedPostgres, sql: str) -> None:
    server.ensure_running()  # a test may have killed it
    with psycopg.connect(server.url, autocommit=True) as admin:
        admin.execute(sql.encode())


@pytest.fixture(scope="session")
def template(server: EmbeddedPostgres) -> str:
    """A database with the whole schema, to clone from."""
    with psycopg.connect(server.url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {TEMPLATE}".encode())
    Database(make_conninfo(server.url, dbname=TEMPLATE)).open().close()
    return TEMPLATE


@pytest.fixture
def empty_url(new_database: Callable[[str], str], server: EmbeddedPostgres) -> Iterator[str]:
    with _dropped(server, new_database("template0")) as url:
        yield url


@pytest.fixture
def url(
    template: str, new_database: Callable[[str], str], server: EmbeddedPostgres
) -> Iterator[str]:
    with _dropped(server, new_database(template)) as url:
        yield url


@pytest.fixture
def session(url: str) -> Iterator[psycopg.Connection]:
    """A connection of the test's own, which commits every statement at once."""
    with psycopg.connect(url, autocommit=True) as session:
        yield session


@pytest.fixture
def database(url: str, server: EmbeddedPostgres) -> Iterator[Database]:
    with Database(url, revive=server.ensure_running).open() as database:
        yield database
