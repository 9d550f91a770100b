"""Who is said to hold a log up."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.integration.conftest import NO_SYNC, temporary_folder
from tests.integration.cutover.conftest import Shop
from tidegate.store import EmbeddedPostgres
from tidegate.store.cutover.change_log import OldestTransaction, holder


@pytest.fixture
def preparing() -> Iterator[str]:
    """A server on which transactions can be prepared."""
    settings = {**NO_SYNC, "max_prepared_transactions": "5"}
    with temporary_folder() as folder:
        with EmbeddedPostgres(folder / "postgres", settings=settings) as server:
            yield server.url
        server.wait_stopped()


def test_a_prepared_transaction_is_named_alone(preparing: str) -> None:
    with (
        psycopg.connect(preparing, autocommit=True) as own,
        psycopg.connect(preparing, application_name="innocent") as innocent,
    ):
        own.execute("CREATE TABLE t (x integer)")
        own.execute("BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'forgotten'")
        innocent.execute("INSERT INTO t VALUES (2)")
        found = holder(own)
        own.execute("ROLLBACK PREPARED 'forgotten'")
        assert (found.pid, found.prepared) == (None, "forgotten")
        assert "forgotten" in str(found)
        assert holder(own).application == "innocent"


def test_a_role_without_rights_is_shown_the_process(shop: Shop) -> None:
    shop.do("CREATE ROLE plain_follower")
    try:
        with (
            psycopg.connect(shop.url, application_name="a report") as forgotten,
            psycopg.connect(shop.url, autocommit=True) as plain,
        ):
            forgotten.execute("CREATE TEMPORARY TABLE left_open (x integer)")
            plain.execute("SET SESSION AUTHORIZATION plain_follower")
            found = holder(plain)
            assert (found.pid, found.application) == (forgotten.info.backend_pid, "a report")
            assert "None" not in str(found)
    finally:
        shop.do("DROP ROLE plain_follower")


def test_no_transaction_is_named_where_none_blocks(shop: Shop) -> None:
    with psycopg.connect(shop.url, autocommit=True) as connection:
        assert holder(connection) == OldestTransaction()
