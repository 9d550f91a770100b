"""Indexes are removed: not those that readers see, and again after a crash in the middle."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import psycopg
import pytest

from tests.crash.cutover import reindex
from tests.integration.cutover.conftest import SOURCE, TARGET, Shop
from tests.integration.cutover.manual_steps import Steps
from tests.integration.flows.conftest import Hand, hand  # noqa: F401  a fixture
from tidegate.cutover import indexes_of, operations, retire, reverse
from tidegate.cutover.postgres_target import PostgresIndexes
from tidegate.cutover.source import TableSource
from tidegate.errors import IndexDiffers, IndexInUse
from tidegate.flows.worker.worker import flow_worker
from tidegate.store import Database
from tidegate.store.flows.runs import flow_run

CONSUMERS = "SELECT split_part(name, ' ', 1) FROM tidegate_log.consumer ORDER BY 1"


@pytest.fixture
def alias(shop: Shop, hand: Hand) -> Shop:  # noqa: F811  a fixture
    """Two indexes; readers see the second."""
    shop.add(1, 20)
    for index in ("v1", "v2"):
        Steps(shop, hand, reindex, index).cut_over()
    return shop


def keeper_of(shop: Shop, index: str) -> int | None:
    (found,) = (it for it in indexes_of(shop.database, reindex) if it.index == index)
    return found.run


@pytest.mark.parametrize(
    ("where", "name"), [(TableSource, "forget_consumer"), (PostgresIndexes, "drop")]
)
def test_retiring_goes_on_where_a_crash_has_left_it(
    alias: Shop, monkeypatch: pytest.MonkeyPatch, where: type, name: str
) -> None:
    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with flow_worker(alias.database, reindex.feed):
        with monkeypatch.context() as crashing:
            crashing.setattr(where, name, dies)
            with pytest.raises(KeyboardInterrupt):
                retire(alias.database, reindex, "v1")
        retire(alias.database, reindex, "v1")
    assert alias.do(CONSUMERS) == [("search.v2",)]
    assert [it.index for it in indexes_of(alias.database, reindex)] == ["search.v2"]


def test_readers_are_not_led_to_an_index_whose_feed_is_ending(
    alias: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(*_: object) -> None:
        reverse(alias.database, reindex, by="somebody else", allow_stale=True)

    monkeypatch.setattr(operations, "_wait_ended", meanwhile)
    with flow_worker(alias.database, reindex.feed), pytest.raises(IndexDiffers) as refused:
        retire(alias.database, reindex, "v1")
    assert (refused.value.index, refused.value.reason) == ("search.v1", "it is being retired")
    assert keeper_of(alias, "search.v2") is not None


def test_the_feed_goes_on_of_an_index_that_readers_came_to_meanwhile(
    alias: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_up = PostgresIndexes.give_up

    def late(*given: object) -> None:
        reverse(alias.database, reindex, by="somebody else", allow_stale=True)
        give_up(*given)  # type: ignore[arg-type]

    feed = keeper_of(alias, "search.v1")
    monkeypatch.setattr(PostgresIndexes, "give_up", late)
    with pytest.raises(IndexInUse, match="shows it; reverse"):
        retire(alias.database, reindex, "v1")
    assert keeper_of(alias, "search.v1") == feed is not None


def test_a_feed_that_does_not_end_is_named_with_its_index(
    alias: Shop,
    hand: Hand,  # noqa: F811  a fixture
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    feed = keeper_of(alias, "search.v1")
    hand.claim("articles-feed/feed")  # as a worker that is frozen
    monkeypatch.setattr(operations, "END_BOUND", 0.1)
    with pytest.raises(IndexInUse) as refused:
        retire(alias.database, reindex, "v1")
    assert refused.value.index == "search.v1"
    assert f"run {feed}" in refused.value.reason


@pytest.mark.parametrize(
    ("used", "reason"),
    [
        ("CREATE VIEW shop.found AS SELECT id FROM search.v1", "the view shop.found shows it"),
        ("LOCK TABLE search.v1 IN SHARE UPDATE EXCLUSIVE MODE", "it is locked"),
    ],
)
def test_the_feed_goes_on_of_an_index_that_cannot_be_removed(
    alias: Shop, used: str, reason: str
) -> None:
    feed = keeper_of(alias, "search.v1")
    with psycopg.connect(alias.url) as somebody:
        somebody.execute(used.encode())
        if used.startswith("CREATE"):
            somebody.commit()
        with pytest.raises(IndexInUse, match=reason):
            retire(alias.database, reindex, "v1")
    assert keeper_of(alias, "search.v1") == feed is not None


def test_an_index_that_is_being_retired_is_not_made_again(alias: Shop, database: Database) -> None:
    with SOURCE.open(database) as source, TARGET.open(database) as indexes:
        indexes.give_up("v1", database.transact)
        for refused in (
            lambda: indexes.create("v1", source.shape()),
            lambda: indexes.check_usable("v1"),
        ):
            _refuses(refused)


def _refuses(call: Callable[[], object]) -> None:
    with pytest.raises(IndexDiffers, match="being retired"):
        call()


def test_whose_changes_are_kept_does_not_change_while_an_index_is_being_retired(
    alias: Shop, database: Database
) -> None:
    with TARGET.open(database) as indexes:
        before = indexes.identity("v1")
        for _ in range(2):
            indexes.give_up("v1", database.transact)
        assert indexes.identity("v1") == before == indexes.known()["search.v1"]


def test_feeds_end_with_their_index(alias: Shop) -> None:
    feed = keeper_of(alias, "search.v1")
    assert feed is not None
    with flow_worker(alias.database, reindex.feed):
        retire(alias.database, reindex, "v1")
    assert alias.database.transact(partial(flow_run, run=feed)).state.value == "canceled"
