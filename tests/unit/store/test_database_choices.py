"""What the store decides without a database."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

import psycopg
import pytest

import tidegate.store
from tidegate.errors import DatabaseTooOld, InvalidDatabase
from tidegate.store.core.database import RETRIES, check_version, describe, is_transient
from tidegate.store.core.queries import parse, queries

STORE = Path(tidegate.store.__file__).parent


def test_a_server_before_15_is_refused() -> None:
    with pytest.raises(DatabaseTooOld) as refused:
        check_version(140_011, "shop on db:5432")
    assert (refused.value.version, refused.value.needed) == ("14.11", 15)


def test_15_is_new_enough() -> None:
    check_version(150_000, "shop on db:5432")


@pytest.mark.parametrize("database", ["shop", "mysql://db/shop", "host"])
def test_what_is_no_address_of_postgresql_is_refused(database: str) -> None:
    with pytest.raises(InvalidDatabase):
        describe(database)


def test_a_refused_address_does_not_show_its_password() -> None:
    with pytest.raises(InvalidDatabase) as refused:
        describe("mysql://me:secret@db/shop")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("error", "passing"),
    [
        (psycopg.OperationalError("server closed the connection unexpectedly"), True),
        (psycopg.errors.AdminShutdown(), True),
        (psycopg.errors.CannotConnectNow(), True),
        (psycopg.errors.DeadlockDetected(), True),
        (psycopg.errors.SerializationFailure(), True),
        (psycopg.errors.InvalidPassword(), False),
        (psycopg.errors.InvalidCatalogName(), False),
        (psycopg.errors.DiskFull(), True),
        (psycopg.errors.IdleSessionTimeout(), True),
        (psycopg.errors.IdleInTransactionSessionTimeout(), True),
        (psycopg.errors.lookup("25P04")(), True),
        (psycopg.errors.QueryCanceled(), True),
        (psycopg.errors.LockNotAvailable(), True),
        (psycopg.DataError("a text cannot hold a NUL"), False),
        (psycopg.InterfaceError("the cursor is closed"), False),
        (psycopg.errors.UntranslatableCharacter(), False),
    ],
)
def test_only_passing_troubles_are_tried_again(error: psycopg.Error, passing: bool) -> None:
    assert is_transient(error) is passing


def test_pauses_grow_to_a_limit() -> None:
    first, *_, last = islice(RETRIES.pauses(), 20)
    assert first < 0.05
    assert RETRIES.longest / 2 <= last <= RETRIES.longest


def test_two_queries_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="one"):
        parse("-- name: one — Say one.\nSELECT 1;\n-- name: one — Again.\nSELECT 1;\n")


@pytest.mark.parametrize(
    "file", [it for it in STORE.rglob("*.sql") if it.with_suffix(".py").exists()], ids=str
)
def test_every_statement_has_a_name_and_a_description(file: Path) -> None:
    text = file.read_text()
    module = ".".join(("tidegate.store", *file.relative_to(STORE).with_suffix("").parts))
    outside = re.sub(r"\$\w*\$.*?\$\w*\$", "", text, flags=re.DOTALL)  # of the bodies of functions
    assert len(queries(module)) == outside.count(";\n")
    assert all(query.sql.endswith(b";") for query in queries(module).values())
