"""Readers are switched when everything proves that they may be; each step is taken by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Thread

import msgspec
import psycopg
import pytest

from tests.integration.cutover.conftest import Shop, declared
from tests.integration.flows.conftest import Hand, hand  # noqa: F401  a fixture
from tests.waiting import wait_until
from tidegate.cutover import Reindex
from tidegate.cutover.values import Cutover, Filled, Portion
from tidegate.flows import FlowStateReader
from tidegate.run.flows.context import TaskContext
from tidegate.run.flows.performing import Done, Failed, Outcome, Performer
from tidegate.store import change_log, flow_tasks
from tidegate.store.flows import flow_state
from tidegate.store.tables import TableName

INDEX = "articles_v1"
SPOIL = f"UPDATE search.{INDEX} SET title = 'spoilt' WHERE id = 3"


@dataclass
class Steps:
    """A cutover whose steps begin when a test says so; what Spark does is done here."""

    shop: Shop
    hand: Hand
    reindex: Reindex = field(default_factory=declared)
    run: int = 0

    def begin(self) -> None:
        self.run = self.hand.begin(self.reindex.flow, f'{{"index": "{INDEX}"}}')

    def perform(self, step: str, kind: type[TaskContext] = TaskContext) -> Outcome:
        (claim,) = self.hand.claim(f"articles/{step}")
        return self.settle(kind(self.shop.database, self.reindex.flow.definition, claim))

    def settle(self, context: TaskContext) -> Outcome:
        outcome = Performer(self.shop.database).perform(context)
        if isinstance(outcome, Done):
            self.hand.complete([outcome.claim], outcome.json)
        elif isinstance(outcome, Failed):
            given = (outcome.claim, outcome.error, 0.0)
            self.hand.do(flow_tasks.fail, *given, is_final=True)
        return outcome

    def fill(self) -> None:
        """Everything up to the comparison."""
        self.begin()
        self.perform("create")
        self.perform("fill")
        for claim in self.hand.claim("articles/fill[]"):
            portion = msgspec.json.decode(claim.payload or "", type=Portion)
            filled = Filled(portion, self._write(portion))
            self.hand.complete([claim], msgspec.json.encode(filled).decode())
        self.perform("filled")
        self.perform("compare")

    def _write(self, portion: Portion) -> int:
        with self.reindex.opened(self.shop.database) as (source, indexes):
            shape = source.shape(indexes.columns(portion.index))
            read, table = change_log.rows_within, TableName.parse("shop.articles")
            rows = self.shop.database.transact(lambda c: read(c, table, shape, portion.within))
            indexes.write(portion.index, rows)
            return int(rows.num_rows)

    def compare(self) -> list[Outcome]:
        definition, database = self.reindex.flow.definition, self.shop.database
        claims = self.hand.claim("articles/compare[]")
        return [self.settle(TaskContext(database, definition, it)) for it in claims]

    @contextmanager
    def following(self) -> Iterator[Thread]:
        """The follower at work, at least until the block is left."""
        (claim,) = self.hand.claim("articles/follow")
        context = TaskContext(self.shop.database, self.reindex.flow.definition, claim)
        thread = Thread(target=self.settle, args=(context,), daemon=True)
        thread.start()
        try:
            yield thread
        finally:
            context.cancel("the test is over")
            thread.join(30)

    def shown(self) -> str | None:
        with self.reindex.opened(self.shop.database) as (_, indexes):
            return indexes.current()

    def is_ready(self, step: str) -> bool:
        asked = (
            "SELECT count(*) FROM tidegate.flow_task"
            " WHERE queue = %s AND state = 'ready' AND available_at <= now()"
        )
        return bool(self.hand.ask(asked, f"articles/{step}") == [(1,)])

    def offset(self) -> str | None:
        _, values = self.hand.do(flow_state, self.run)
        return values["consumer_offset"].json


@pytest.fixture
def steps(shop: Shop, hand: Hand) -> Steps:  # noqa: F811  a fixture
    shop.add(1, 1000)
    return Steps(shop, hand)


def test_readers_are_switched_when_the_follower_has_passed_the_watermark(steps: Steps) -> None:
    steps.fill()
    assert all(isinstance(it, Done) for it in steps.compare())
    steps.shop.do("UPDATE shop.articles SET title = 'before the switch' WHERE id = 3")
    steps.perform("switch")
    assert not steps.is_ready("switch")
    assert steps.shown() is None
    with steps.following() as follower:
        wait_until(lambda: steps.is_ready("switch"))
        assert follower.is_alive()
        steps.shop.do("DELETE FROM shop.articles WHERE id = 4")
        assert isinstance(steps.perform("switch"), Done)
        assert steps.shown() == f"search.{INDEX}"
        wait_until(lambda: not follower.is_alive())
    assert steps.shop.differences(INDEX) == []
    finished = steps.perform("finish")
    assert isinstance(finished, Done)
    found = msgspec.json.decode(finished.json, type=Cutover)
    assert (found.index, found.previous, found.rows) == (f"search.{INDEX}", None, 1000)
    assert steps.hand.state(steps.run) == "completed"
    assert steps.hand.state(found.feed) == "running"


class Impatient(TaskContext):
    """It does not wait: as if it had seen a state that is not so any more."""

    def wait_for_state(
        self,
        predicate: Callable[[FlowStateReader], bool],
        poll_interval: float = 0.25,
        timeout: float | None = None,
    ) -> FlowStateReader:
        return FlowStateReader(self.step, {}, {})


def test_the_gate_is_proven_in_the_transaction_that_switches(steps: Steps) -> None:
    steps.fill()
    steps.compare()
    outcome = steps.perform("switch", Impatient)
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith("GateClosed: search.articles was not switched to")
    assert "backfill_done is true, consumer_offset is None of" in outcome.error
    assert steps.shown() is None
    assert steps.shop.do("SELECT count(*) FROM tidegate.alias_switch") == [(0,)]


def test_readers_stay_where_they_are_when_a_row_differs(steps: Steps) -> None:
    steps.fill()
    steps.shop.do(SPOIL)
    errors = [it.error for it in steps.compare() if isinstance(it, Failed)]
    assert len(errors) == 1
    assert "3 is different" in errors[0]
    assert steps.hand.state(steps.run) == "failed"
    assert steps.hand.claim("articles/switch") == []
    assert steps.shown() is None


def test_a_follower_that_is_held_up_from_the_start_is_seen_to_be_behind(steps: Steps) -> None:
    with psycopg.connect(steps.shop.url) as forgotten:
        forgotten.execute("CREATE TEMPORARY TABLE left_open (at integer)")
        steps.fill()
        steps.compare()
        with steps.following():
            wait_until(lambda: steps.offset() is not None)
            steps.perform("switch")
            behind = "SELECT behind > 0 FROM tidegate.flow_waits WHERE key = 'consumer_offset'"
            assert steps.hand.ask(behind) == [(True,)]
            forgotten.commit()
            wait_until(lambda: steps.is_ready("switch"))
