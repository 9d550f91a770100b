"""Random writers against a follower, late fills and trims: in the end an index is as its table."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import psycopg
import pyarrow as pa
import pytest
from psycopg import errors

from tests.integration.cutover.conftest import SOURCE, TARGET, Shop
from tidegate.cutover.change_consumer import ChangeApplier
from tidegate.cutover.postgres_target import PostgresIndexes
from tidegate.cutover.source import TableSource
from tidegate.store import Database
from tidegate.store.cutover import change_log
from tidegate.store.cutover.tables import KeyRange

WRITERS, TRANSACTIONS, KEYS = 4, 60, 12
PUT = """INSERT INTO shop.articles (id, title) VALUES (%(id)s, %(text)s)
ON CONFLICT (id) DO UPDATE SET title = excluded.title"""
MOVE = """UPDATE shop.articles SET id = %(other)s WHERE id = %(id)s
AND NOT EXISTS (SELECT FROM shop.articles WHERE id = %(other)s)"""
UPDATE = "UPDATE shop.articles SET title = %(text)s WHERE id = %(id)s"
DELETE = "DELETE FROM shop.articles WHERE id = %(id)s"
STATEMENTS = (PUT, MOVE, UPDATE, DELETE)
LEVELS = (None, None, psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE)
BORNE = (errors.SerializationFailure, errors.DeadlockDetected, errors.UniqueViolation)


class Writer:
    """Does random things in random transactions, some of which come to nothing."""

    def __init__(self, url: str, seed: int) -> None:
        self._url = url
        self._chance = random.Random(seed)

    def __call__(self) -> None:
        with psycopg.connect(self._url) as connection:
            for _ in range(TRANSACTIONS):
                connection.isolation_level = self._chance.choice(LEVELS)
                self._transact(connection)

    def _transact(self, connection: psycopg.Connection) -> None:
        try:
            for _ in range(self._chance.randint(1, 4)):
                self._nested(connection)
            if self._chance.random() < 0.04:
                connection.execute("DELETE FROM shop.articles")
            if self._chance.random() < 0.2:
                connection.rollback()
            connection.commit()
        except BORNE:
            connection.rollback()

    def _nested(self, connection: psycopg.Connection) -> None:
        """A statement, perhaps in a savepoint that is given up."""
        if self._chance.random() < 0.5:
            self._change(connection)
            return
        is_kept = self._chance.random() < 0.5
        with connection.transaction() as savepoint:
            self._change(connection)
            if not is_kept:
                raise psycopg.Rollback(savepoint)

    def _change(self, connection: psycopg.Connection) -> None:
        id_, other = self._chance.sample(range(KEYS), 2)
        given = {"id": id_, "other": other, "text": str(self._chance.random())}
        connection.execute(self._chance.choice(STATEMENTS).encode(), given)


class Keeper:
    """Follows, trims, and fills with what was read some time ago, in any order."""

    def __init__(
        self, source: TableSource, indexes: PostgresIndexes, offset: int, seed: int
    ) -> None:
        self._source = source
        self._indexes = indexes
        self._chance = random.Random(seed)
        self._read: list[pa.Table] = []
        self._begin = offset
        self.follower = ChangeApplier(source, indexes, "v1", offset)

    def work(self, database: Database, over: Event) -> None:
        steps = (self._follow, self._follow, self._trim, self._write, self._take_over)
        while not over.is_set():
            self.read(database)
            self._chance.choice(steps)()
        self._follow()
        while self._read:
            self._write()

    def read(self, database: Database) -> None:
        table, shape = self._source.table, self._source.shape(self._indexes.columns("v1"))
        rows = database.transact(lambda c: change_log.rows_within(c, table, shape, KeyRange()))
        if len(self._read) < 20:
            self._read.append(rows)

    def _follow(self) -> None:
        self.follower.catch_up()

    def _trim(self) -> None:
        self._begin = self.follower.offset
        self._source.advance(self.follower.identity, self._begin)

    def _write(self) -> None:
        if self._read:
            rows = self._read.pop(self._chance.randrange(len(self._read)))
            self._indexes.write("v1", rows, self.follower.identity)

    def _take_over(self) -> None:
        """Another follower, which knows what was told and not what was done since."""
        self.follower = ChangeApplier(self._source, self._indexes, "v1", self._begin)


@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_an_index_is_as_its_table(
    seed: int, shop: Shop, database: Database
) -> None:
    shop.add(0, KEYS // 2)
    over = Event()
    with (
        SOURCE.open(database) as source,
        TARGET.open(database) as indexes,
        ThreadPoolExecutor(WRITERS + 1) as threads,
    ):
        source.start_log()
        indexes.create("v1", source.shape())
        keeper = Keeper(source, indexes, source.register(indexes.identity("v1")), seed)
        keeper.read(database)
        keeping = threads.submit(keeper.work, database, over)
        writing = [
            threads.submit(Writer(shop.url, 100 * seed + number)) for number in range(WRITERS)
        ]
        try:
            for it in writing:
                it.result(60)
        finally:
            over.set()
        keeping.result(60)
        assert keeper.follower.applied > 0
    assert shop.differences("v1") == []
