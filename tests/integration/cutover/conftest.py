"""What tests of cutovers share: a table of articles, and an index of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from tidegate.cutover import Limits, PostgresTable, PostgresTarget, Reindex
from tidegate.flows.client import FlowRun, start_flow
from tidegate.flows.worker.worker import FlowWorker
from tidegate.store import Database, Notifications
from tidegate.store.cutover.change_log import DELETED, VERSION

ARTICLES = """
CREATE SCHEMA shop;
CREATE TABLE shop.articles (
    id integer PRIMARY KEY,
    title text NOT NULL,
    body text,
    price numeric(10, 2),
    changed_at timestamptz NOT NULL DEFAULT now(),
    notes json
);
"""
SOURCE = PostgresTable("shop.articles")
TARGET = PostgresTarget("search.articles", text=("title", "body"), language="english")


def declared(**limits: Any) -> Reindex:
    given = {"portion": 400, "piece": 100, "gate_timeout": 60.0, **limits}
    return Reindex("articles", SOURCE, TARGET, Limits(**given), master="local[2]")


@dataclass
class Shop:
    """A table with articles, in the database of the flows."""

    database: Database
    url: str

    def do(self, statement: str, *given: object) -> list[Any]:
        """Run statements, committed at once."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), given or None)
            return cursor.fetchall() if cursor.description else []

    def add(self, first: int, last: int) -> None:
        self.do(
            "INSERT INTO shop.articles (id, title, body, price, notes)"
            " SELECT at, 'Article ' || at, CASE WHEN at %% 7 > 0 THEN 'about rivers ' || at END,"
            " at / 3.0, ('{\"at\":  ' || at || '}')::json"
            " FROM generate_series(%s::int, %s::int) AS at",
            first,
            last,
        )

    def differences(self, index: str) -> list[Any]:
        """Rows that are not the same in the table and in what readers of the index would see."""
        columns = "id, title, body, price, changed_at, notes::text"
        there = f"SELECT {columns} FROM search.{index} WHERE NOT {DELETED}"
        here = f"SELECT {columns} FROM shop.articles"
        return self.do(f"({here} EXCEPT {there}) UNION ALL ({there} EXCEPT {here})")

    def versions(self, index: str) -> dict[int, tuple[int, bool]]:
        rows = self.do(f"SELECT id, {VERSION}, {DELETED} FROM search.{index}")
        return {id_: (version, deleted) for id_, version, deleted in rows}


@pytest.fixture
def shop(database: Database, url: str) -> Shop:
    made = Shop(database, url)
    made.do(ARTICLES)
    return made


@dataclass
class Hall:
    """A worker for cutovers, and runs of them."""

    shop: Shop
    reindex: Reindex
    notifications: Notifications

    def begin(self, index: str) -> FlowRun:
        from tidegate.cutover import CutoverRequest

        return start_flow(self.shop.database, self.reindex.flow, CutoverRequest(index))

    def finish(self, index: str) -> FlowRun:
        run = self.begin(index)
        run.wait(240, self.notifications)
        return run


@pytest.fixture
def hall(shop: Shop, database: Database, spark: object) -> Iterator[Hall]:
    reindex = declared()
    with (
        Notifications(database) as notifications,
        FlowWorker(database, [reindex.flow, reindex.feed], notifications),
    ):
        yield Hall(shop, reindex, notifications)
