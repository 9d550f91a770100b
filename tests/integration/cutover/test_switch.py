"""Readers are switched when everything proves that they may be; each step is taken by hand."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import psycopg
import pytest

from tests.integration.cutover.conftest import ARTICLES, TARGET, Shop, declared
from tests.integration.cutover.manual_steps import Steps
from tests.integration.flows.conftest import Hand, hand  # noqa: F401  a fixture
from tests.waiting import wait_until
from tidegate.cutover import Limits, PostgresTable, Reindex, reverse
from tidegate.cutover.values import Switched
from tidegate.flows import FlowStateReader
from tidegate.flows.worker.executor import TaskExecutor, TaskFailed, TaskSucceeded
from tidegate.flows.worker.task_context import TaskContext
from tidegate.store.flows.runs import sweep_flows
from tidegate.store.flows.tasks import Claim

INDEX = "articles_v1"
SPOIL = f"UPDATE search.{INDEX} SET title = 'spoilt' WHERE id = 3"


@pytest.fixture
def steps(shop: Shop, hand: Hand) -> Steps:  # noqa: F811  a fixture
    shop.add(1, 1000)
    return Steps(shop, hand)


def test_readers_are_switched_when_the_consumer_has_passed_the_watermark(steps: Steps) -> None:
    steps.fill()
    assert all(isinstance(it, TaskSucceeded) for it in steps.compare())
    steps.shop.do("UPDATE shop.articles SET title = 'before the switch' WHERE id = 3")
    steps.perform("switch")
    assert not steps.is_ready("switch")
    assert steps.shown() is None
    with steps.following() as follower:
        wait_until(lambda: steps.is_ready("switch"))
        assert follower.is_alive()
        steps.shop.do("DELETE FROM shop.articles WHERE id = 4")
        assert isinstance(steps.perform("switch"), TaskSucceeded)
        assert steps.shown() == f"search.{INDEX}"
        wait_until(lambda: not follower.is_alive())
    assert steps.shop.differences(INDEX) == []
    found = steps.finish()
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
    assert isinstance(outcome, TaskFailed)
    assert outcome.error.startswith("GateClosed: search.articles was not switched to")
    assert "backfill_done is true, consumer_offset is None of" in outcome.error
    assert steps.shown() is None
    assert steps.shop.do("SELECT count(*) FROM tidegate.alias_switch") == [(0,)]


def test_readers_stay_where_they_are_when_a_row_differs(steps: Steps) -> None:
    steps.fill()
    steps.shop.do(SPOIL)
    errors = [it.error for it in steps.compare() if isinstance(it, TaskFailed)]
    assert len(errors) == 1
    assert "3 is different" in errors[0]
    assert steps.hand.state(steps.run) == "failed"
    assert steps.hand.claim("articles/switch") == []
    assert steps.shown() is None


def test_a_consumer_that_is_blocked_from_the_start_is_seen_to_be_behind(steps: Steps) -> None:
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


def test_the_table_may_be_in_another_database(
    shop: Shop,
    hand: Hand,  # noqa: F811  a fixture
    new_database: Callable[[str], str],
) -> None:
    elsewhere = Shop(shop.database, new_database("template1"))
    elsewhere.do(ARTICLES)
    elsewhere.add(1, 1000)
    source = PostgresTable("shop.articles", url=elsewhere.url)
    steps = Steps(shop, hand, Reindex("articles", source, TARGET, Limits(portion=400)))
    steps.fill()
    elsewhere.do("UPDATE shop.articles SET title = 'changed' WHERE id = 3")
    elsewhere.do("DELETE FROM shop.articles WHERE id = 4")
    steps.go_on()
    columns = "id, title, body, price, changed_at, notes::text"
    there = elsewhere.do(f"SELECT {columns} FROM shop.articles ORDER BY id")
    assert shop.do(f"SELECT {columns} FROM search.articles ORDER BY id") == there
    assert len(there) == 999


@pytest.fixture
def second(shop: Shop, hand: Hand) -> Steps:  # noqa: F811  fixtures
    """A cutover to a second index that may be switched to; readers use the first."""
    shop.add(1, 20)
    Steps(shop, hand).cut_over()
    steps = Steps(shop, hand, index="articles_v2")
    steps.fill()
    steps.compare()
    return steps


def performed(steps: Steps, claim: Claim) -> Switched:
    """The switch, by whoever has this claim, and not yet said to be done."""
    context = TaskContext(steps.shop.database, steps.reindex.flow.definition, claim)
    outcome = TaskExecutor(steps.shop.database).execute(context)
    assert isinstance(outcome, TaskSucceeded)
    return msgspec.json.decode(outcome.json, type=Switched)


def ready_to_switch(steps: Steps) -> Claim:
    wait_until(lambda: steps.offset() is not None)
    if not isinstance(steps.perform("switch"), TaskSucceeded):
        wait_until(lambda: steps.is_ready("switch"))
    (claim,) = steps.hand.claim("articles/switch")
    return claim


def test_a_switch_that_is_run_again_returns_what_was_switched(second: Steps) -> None:
    with second.following():
        claim = ready_to_switch(second)
        first = performed(second, claim)
        second.shop.do("UPDATE shop.articles SET title = 'after the switch'")
        assert performed(second, claim) == first
    assert (first.index, first.previous) == ("search.articles_v2", "search.articles_v1")


def test_a_switch_that_is_run_again_keeps_a_later_reverse(second: Steps) -> None:
    with second.following():
        claim = ready_to_switch(second)
        performed(second, claim)
        back = reverse(second.shop.database, second.reindex, by="somebody", allow_stale=True)
        performed(second, claim)
    assert back == second.shown() == "search.articles_v1"


def test_what_was_pending_at_the_switch_is_measured(second: Steps) -> None:
    with second.following():
        claim = ready_to_switch(second)
    second.shop.do("UPDATE shop.articles SET title = 'not yet to be found' WHERE id = 3")
    found = performed(second, claim)
    assert found.pending == 1
    assert found.staleness > 0
    noted = "SELECT pending, staleness FROM tidegate.alias_switch ORDER BY id DESC LIMIT 1"
    assert second.shop.do(noted) == [(found.pending, found.staleness)]


def test_the_consumer_stays_until_everything_is_applied_that_was_committed_at_the_switch(
    second: Steps,
) -> None:
    with psycopg.connect(second.shop.url) as late, second.following() as follower:
        claim = ready_to_switch(second)
        late.execute("UPDATE shop.articles SET title = 'late' WHERE id = 4")
        performed(second, claim)
        wait_until(lambda: second.value("drain_watermark") is not None)
        follower.join(0.5)  # several rounds, in each of which it might end too early
        assert follower.is_alive()
        late.commit()
        wait_until(lambda: not follower.is_alive())
    assert int(second.value("consumer_offset") or 0) >= int(second.value("drain_watermark") or 0)
    assert second.shop.differences("articles_v2") == []


def test_a_gate_that_stays_closed_reports_how_far_the_consumer_is(
    shop: Shop,
    hand: Hand,  # noqa: F811  a fixture
) -> None:
    shop.add(1, 20)
    steps = Steps(shop, hand, declared(gate_timeout=0.2))
    steps.fill()
    steps.compare()
    steps.perform("switch")
    wait_until(lambda: bool(hand.do(sweep_flows)) and steps.is_ready("switch"))
    outcome = steps.perform("switch")
    assert isinstance(outcome, TaskFailed)
    assert outcome.is_final
    assert outcome.error.startswith("StateNeverCame: ")
    assert "consumer_offset" in outcome.error
    assert steps.shown() is None
