"""A target that is no PostgreSQL: the protocol is all that a cutover needs of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from tests.integration.cutover.conftest import SOURCE, Shop
from tests.integration.cutover.manual_steps import Steps
from tests.integration.flows.conftest import Hand, hand  # noqa: F401  a fixture
from tests.waiting import wait_until
from tidegate.cutover import Indexes, Limits, Reindex, Target, retire, reverse
from tidegate.cutover.targets import Together
from tidegate.errors import IndexInUse
from tidegate.flows.worker.executor import TaskSucceeded
from tidegate.flows.worker.worker import flow_worker
from tidegate.store import Connection, Database
from tidegate.store.cutover.change_log import DELETED, VERSION
from tidegate.store.cutover.indexes import SwitchRecord, held, record_switch
from tidegate.store.cutover.tables import Key, KeyRange, RangeDigest, TableShape, checksum_of


@dataclass
class Engine:
    """As a search engine: documents with external versions, and an alias that moves at once."""

    alias: str = "found"
    shape: TableShape | None = None
    documents: dict[str, dict[Key, dict[str, Any]]] = field(default_factory=dict)
    stands_for: str | None = None
    lost_answers: int = 0
    """Switches that happen, and whoever asked hears an error."""

    @contextmanager
    def open(self, own: Database) -> Iterator[Engine]:
        yield self

    def qualified(self, index: str) -> str:
        return index

    def create(self, index: str, shape: TableShape) -> None:
        self.shape = shape
        self.documents.setdefault(index, {})

    def is_there(self, index: str) -> bool:
        return index in self.documents

    def columns(self, index: str) -> tuple[str, ...]:
        assert self.shape is not None
        return tuple(it.name for it in self.shape.columns)

    def identity(self, index: str) -> str:
        return f"engine/{index}"

    def is_empty(self, index: str) -> bool:
        return not self.documents[index]

    def known(self) -> dict[str, str]:
        return {it: self.identity(it) for it in self.documents}

    def check_usable(self, index: str) -> None:
        """All of them are its own."""

    def write(self, index: str, rows: pa.Table, identity: str | None = None) -> int:
        written = 0
        for row in rows.to_pylist():
            key, there = self._key(row), self.documents[index]
            if key not in there or int(row[VERSION]) >= int(there[key][VERSION]):
                there[key] = row
                written += 1
        return written

    def digest(self, index: str, within: KeyRange, shape: TableShape) -> RangeDigest:
        found = self.checksums(index, within, shape)
        return RangeDigest(len(found), str(sum(found.values())))

    def checksums(self, index: str, within: KeyRange, shape: TableShape) -> dict[Key, int]:
        return {
            key: checksum_of([row[it.name] for it in shape.columns])
            for key, row in self.documents[index].items()
            if row[DELETED] == "f" and _is_in(key, within)
        }

    def current(self) -> str | None:
        return self.stands_for

    def switch(self, index: str, noted: SwitchRecord, together: Together) -> None:
        before = noted.previous if self.stands_for == index else self.stands_for
        self.stands_for = index
        if self.lost_answers:
            self.lost_answers -= 1
            raise ConnectionResetError("the answer was lost")
        together(lambda connection: record_switch(connection, self.alias, index, before, noted))

    def give_up(self, index: str, together: Together) -> None:
        def given_up(connection: Connection) -> None:
            with held(connection, self.alias):
                if self.stands_for == index:
                    raise IndexInUse(index, "readers find it")

        together(given_up)

    def drop(self, index: str) -> None:
        del self.documents[index]

    def _key(self, row: dict[str, Any]) -> Key:
        assert self.shape is not None
        return tuple(row[it.name] for it in self.shape.key)

    def found(self) -> dict[int, str]:
        """What readers of the alias find."""
        rows = self.documents[self.stands_for or ""].values()
        return {int(row["id"]): row["title"] for row in rows if row[DELETED] == "f"}


FULFILLED: tuple[type[Target], type[Indexes]] = (Engine, Engine)
"""By the types alone: it is all that a cutover asks for."""


def _is_in(key: Key, within: KeyRange) -> bool:
    """By the order of the source, whose key is a number."""
    at = int(key[0])
    is_behind = within.low is None or at > int(within.low[0])
    return is_behind and (within.high is None or at <= int(within.high[0]))


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def reindex(engine: Engine) -> Reindex:
    return Reindex("articles", SOURCE, engine, Limits(portion=400))


def in_table(shop: Shop) -> dict[int, str]:
    return dict(shop.do("SELECT id, title FROM shop.articles"))


def test_a_cutover_to_another_engine_finds_what_the_table_has(
    shop: Shop,
    hand: Hand,  # noqa: F811  a fixture
    engine: Engine,
    reindex: Reindex,
) -> None:
    shop.add(1, 1000)
    steps = Steps(shop, hand, reindex)
    steps.fill()
    shop.do("UPDATE shop.articles SET title = 'né, \"quoted\"', body = NULL WHERE id = 3")
    shop.do("DELETE FROM shop.articles WHERE id = 4")
    found = steps.go_on()
    assert (found.rows, engine.stands_for) == (999, "articles_v1")
    assert engine.found() == in_table(shop)


def test_a_row_that_differs_in_another_engine_is_named(
    shop: Shop,
    hand: Hand,  # noqa: F811  a fixture
    engine: Engine,
    reindex: Reindex,
) -> None:
    shop.add(1, 1000)
    steps = Steps(shop, hand, reindex)
    steps.fill()
    engine.documents["articles_v1"][("7",)]["title"] = "spoilt"
    errors = [getattr(it, "error", "") for it in steps.compare()]
    assert next(it for it in errors if it).startswith("RowsDiffer: ")
    assert "7 is different" in "".join(errors)
    assert engine.stands_for is None


def test_readers_of_another_engine_go_back(
    shop: Shop,
    hand: Hand,  # noqa: F811  a fixture
    engine: Engine,
    reindex: Reindex,
) -> None:
    shop.add(1, 20)
    for index in ("articles_v1", "articles_v2"):
        Steps(shop, hand, reindex, index).cut_over()
    with flow_worker(shop.database, reindex.feed):
        shop.do("UPDATE shop.articles SET title = 'changed since' WHERE id = 3")
        assert reverse(shop.database, reindex, by="somebody") == "articles_v1"
        assert engine.found()[3] == "changed since"
        retire(shop.database, reindex, "articles_v2")
    assert list(engine.documents) == ["articles_v1"]


def test_a_switch_whose_answer_was_lost_is_finished_by_the_next_try(
    shop: Shop,
    hand: Hand,  # noqa: F811  a fixture
    engine: Engine,
    reindex: Reindex,
) -> None:
    shop.add(1, 20)
    Steps(shop, hand, reindex, "articles_v1").cut_over()
    steps = Steps(shop, hand, reindex, "articles_v2")
    steps.fill()
    steps.compare()
    engine.lost_answers = 1
    with steps.following() as follower:
        wait_until(lambda: steps.offset() is not None)
        while not isinstance(steps.perform("switch", is_final=False), TaskSucceeded):
            wait_until(lambda: steps.is_ready("switch"))
        wait_until(lambda: not follower.is_alive())
    found = steps.finish()
    assert engine.lost_answers == 0
    assert (found.index, found.previous) == ("articles_v2", "articles_v1")
