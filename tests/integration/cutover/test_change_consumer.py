"""Following changes and comparing, while others write."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from tests.integration.cutover.conftest import SOURCE, TARGET, Shop
from tests.integration.cutover.manual_steps import Steps
from tests.integration.flows.conftest import Hand, hand  # noqa: F401  a fixture
from tidegate.cutover import change_consumer as module
from tidegate.cutover.change_consumer import ChangeApplier, ChangeConsumer
from tidegate.cutover.postgres_target import PostgresIndexes
from tidegate.cutover.source import TableSource
from tidegate.cutover.values import Portion
from tidegate.cutover.verify import verify
from tidegate.errors import FlowCancelled, OffsetAhead, RowsDiffer, StreamStalled
from tidegate.flows.worker.executor import TaskExecutor, TaskReturned
from tidegate.flows.worker.task_context import TaskContext
from tidegate.store import Database
from tidegate.store.cutover import change_log
from tidegate.store.cutover.tables import KeyRange

WHOLE = Portion("v1", None, None)


@dataclass
class Both:
    source: TableSource
    indexes: PostgresIndexes
    follower: ChangeApplier

    def fill(self, shop: Shop) -> None:
        """What Spark does, in one go."""
        shape = self.source.shape(self.indexes.columns("v1"))
        read = change_log.rows_within
        rows = shop.database.transact(lambda c: read(c, self.source.table, shape, KeyRange()))
        self.indexes.write("v1", rows)

    def compare(self, offset: int | None = None) -> tuple[int, int]:
        at = self.follower.offset if offset is None else offset
        found = verify(self.source, self.indexes, WHOLE, lambda: at)
        return found.rows, found.pending


@pytest.fixture
def both(shop: Shop, database: Database) -> Iterator[Both]:
    shop.add(1, 100)
    with SOURCE.open(database) as source, TARGET.open(database) as indexes:
        offset = source.start_log()
        indexes.create("v1", source.shape())
        source.register(indexes.identity("v1"))
        yield Both(source, indexes, ChangeApplier(source, indexes, "v1", offset))


def test_filling_and_following_in_any_order_give_the_table(shop: Shop, both: Both) -> None:
    shop.do("UPDATE shop.articles SET title = 'first' WHERE id <= 10")
    both.follower.catch_up()
    shop.do("DELETE FROM shop.articles WHERE id = 5")
    shop.do("UPDATE shop.articles SET title = 'second' WHERE id <= 10")
    both.fill(shop)
    shop.do("UPDATE shop.articles SET title = 'third' WHERE id = 7")
    both.follower.catch_up()
    both.fill(shop)
    assert shop.differences("v1") == []


def test_a_consumer_that_starts_again_repeats_and_changes_nothing(shop: Shop, both: Both) -> None:
    begin = both.follower.offset
    shop.do("UPDATE shop.articles SET title = 'x'")
    shop.do("DELETE FROM shop.articles WHERE id < 50")
    both.follower.catch_up()
    before = shop.versions("v1")
    again = ChangeApplier(both.source, both.indexes, "v1", begin)
    assert again.catch_up() == both.follower.applied
    assert shop.versions("v1") == before
    assert shop.differences("v1") == []


def test_more_than_a_page_is_stored_page_by_page(
    shop: Shop, both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGE", 30)
    both.fill(shop)
    shop.do("UPDATE shop.articles SET title = 'x'")
    pages: list[int] = []
    both.follower.catch_up(pages.append)
    assert pages == [30, 30, 30]
    assert shop.differences("v1") == []


def test_an_index_that_is_as_its_table_compares_well(shop: Shop, both: Both) -> None:
    both.fill(shop)
    assert both.compare() == (100, 0)


def test_rows_whose_change_is_under_way_do_not_differ(shop: Shop, both: Both) -> None:
    both.fill(shop)
    shop.do("UPDATE shop.articles SET title = 'x' WHERE id <= 3")
    shop.do("DELETE FROM shop.articles WHERE id = 9")
    assert both.compare() == (99, 4)


@pytest.mark.parametrize(
    ("spoil", "how"),
    [
        ("UPDATE search.v1 SET title = 'spoilt' WHERE id = 3", "3 is different"),
        ("DELETE FROM search.v1 WHERE id = 3", "3 is missing"),
        ("INSERT INTO search.v1 (id, tidegate_version, tidegate_deleted) VALUES (900, 0, false)",
         "900 is too much"),
    ],
)  # fmt: skip
def test_a_row_that_is_wrong_is_found_and_named(
    shop: Shop, both: Both, spoil: str, how: str
) -> None:
    both.fill(shop)
    shop.do("UPDATE shop.articles SET title = 'x' WHERE id > 50")
    shop.do(spoil)
    with pytest.raises(RowsDiffer) as differ:
        both.compare()
    assert (differ.value.number, differ.value.examples) == (1, how)


def told(both: Both, patience: float = 60.0) -> tuple[ChangeConsumer, list[int], list[str]]:
    offsets: list[int] = []
    complaints: list[str] = []
    following = ChangeConsumer(
        both.follower, both.source, offsets.append, complaints.append, patience
    )
    return following, offsets, complaints


def test_an_offset_is_stored_when_changes_are_in_the_index(shop: Shop, both: Both) -> None:
    following, offsets, _ = told(both)
    watermark = both.source.head()
    shop.do("UPDATE shop.articles SET title = 'x' WHERE id = 1")
    following.round(watermark)
    assert offsets
    assert offsets[-1] >= watermark
    assert shop.versions("v1").keys() == {1}


def test_a_target_that_refuses_is_tried_again_and_nothing_is_lost(shop: Shop, both: Both) -> None:
    following, offsets, complaints = told(both)
    shop.do("ALTER TABLE search.v1 ADD CONSTRAINT closed CHECK (false) NOT VALID")
    shop.do("UPDATE shop.articles SET title = 'x' WHERE id = 1")
    assert following.round(None) > 0
    assert offsets == []
    assert "closed" in complaints[-1]
    shop.do("ALTER TABLE search.v1 DROP CONSTRAINT closed")
    following.round(None)
    assert offsets
    assert complaints[-1] == ""
    assert shop.versions("v1").keys() == {1}


def test_a_target_that_refuses_for_too_long_ends_it(shop: Shop, both: Both) -> None:
    following, _, _ = told(both, patience=0.0)
    shop.do("ALTER TABLE search.v1 ADD CONSTRAINT closed CHECK (false) NOT VALID")
    shop.do("UPDATE shop.articles SET title = 'x' WHERE id = 1")
    following.round(None)
    with pytest.raises(StreamStalled) as stalled:
        following.round(None)
    assert "closed" in stalled.value.reason


def test_a_transaction_that_holds_the_log_up_is_named(
    shop: Shop, both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STALL", 0.0)
    following, _, complaints = told(both)
    with psycopg.connect(shop.url, application_name="a long report") as connection:
        connection.execute("UPDATE shop.articles SET title = 'x' WHERE id = 1")
        shop.do("UPDATE shop.articles SET title = 'x' WHERE id = 2")
        following.round(None)
        following.round(None)
        assert "a long report" in complaints[-1]
    following.round(None)
    assert complaints[-1] == ""


def test_a_report_of_an_earlier_attempt_is_cleared_by_the_next(shop: Shop, both: Both) -> None:
    following, _, complaints = told(both)
    assert complaints == []
    following.round(None)
    assert complaints == [""]


def test_an_offset_of_another_server_ends_a_consumer_at_once(shop: Shop, both: Both) -> None:
    both.follower.offset = ahead = both.source.head() + 1000
    following, offsets, _ = told(both)
    with pytest.raises(OffsetAhead) as refused:
        following.round(None)
    assert (refused.value.offset, refused.value.index) == (ahead, "v1")
    assert refused.value.bound < ahead
    assert offsets == []


def test_an_offset_is_never_ahead_while_transactions_come_and_go(shop: Shop, both: Both) -> None:
    with psycopg.connect(shop.url) as slow:
        slow.execute("UPDATE shop.articles SET title = 'x' WHERE id = 1")
        for at in range(2, 6):
            shop.do("UPDATE shop.articles SET title = 'y' WHERE id = %s", at)
            both.follower.catch_up()
            assert both.follower.offset < both.source.head()
    assert both.follower.catch_up() == 5


def cancelled() -> None:
    raise FlowCancelled(1, "consume", "the test says so")


def test_a_transaction_of_many_pages_can_be_left(
    shop: Shop, both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGE", 10)
    shop.do("UPDATE shop.articles SET title = 'x'")
    following = ChangeConsumer(both.follower, both.source, print, print, 60.0, cancelled)
    with pytest.raises(FlowCancelled):
        following.round(None)
    assert both.follower.applied == 10


def test_a_run_that_is_cancelled_leaves_a_transaction_of_many_pages(
    shop: Shop,
    hand: Hand,  # noqa: F811  a fixture
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PAGE", 10)
    steps = Steps(shop, hand)
    steps.begin()
    steps.perform("create")
    shop.add(1, 50)
    (claim,) = hand.claim("articles/consume")
    context = TaskContext(shop.database, steps.reindex.flow.definition, claim)
    write = PostgresIndexes.write

    def cancelling(*given: Any) -> int:
        context.cancel("the worker stops")
        return write(*given)

    monkeypatch.setattr(PostgresIndexes, "write", cancelling)
    assert isinstance(TaskExecutor(shop.database).execute(context), TaskReturned)
    assert len(shop.versions("articles_v1")) == 10


def logged(shop: Shop) -> int:
    return len(shop.do('SELECT 1 FROM tidegate_log."shop.articles"'))


def test_a_log_is_shortened_by_all_that_is_behind(
    shop: Shop, both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_log, "TRIMMED", 10)
    shop.do("UPDATE shop.articles SET title = 'x'")
    following, _, _ = told(both)
    following.round(None)
    assert logged(shop) == 0


def test_the_shortening_of_a_log_can_be_left(
    shop: Shop, both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_log, "TRIMMED", 10)
    shop.do("UPDATE shop.articles SET title = 'x'")
    following = ChangeConsumer(both.follower, both.source, lambda _: None, print, 60.0, cancelled)
    with pytest.raises(FlowCancelled):
        following.round(None)
    assert logged(shop) == 90


def test_changes_do_not_wait_for_long_behind_the_shortening_of_a_log(
    shop: Shop, both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_log, "TRIMMED", 10)
    monkeypatch.setattr(module, "TRIM_FOR", 0.0)
    shop.do("UPDATE shop.articles SET title = 'x'")
    following, _, _ = told(both)
    following.round(None)
    assert logged(shop) == 90
    for _ in range(10):
        following.round(None)
    assert logged(shop) == 0
