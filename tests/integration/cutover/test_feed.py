"""An index that readers see is kept fresh: by whom is told, and it can be given a feed again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.crash.cutover import reindex
from tests.integration.cutover.conftest import Shop
from tests.integration.cutover.manual_steps import Steps
from tests.integration.flows.conftest import Hand, hand  # noqa: F401  a fixture
from tests.waiting import wait_until
from tidegate.cli import app
from tidegate.cutover import feed, indexes_of, reverse
from tidegate.cutover.operations import IndexStatus
from tidegate.errors import FeedRefused, IndexDiffers, IndexUnfed, NotFollowed
from tidegate.flows.metrics import metrics_text
from tidegate.flows.worker.executor import TaskSucceeded
from tidegate.flows.worker.worker import flow_worker
from tidegate.store.flows import tasks as flow_tasks
from tidegate.store.flows.runs import cancel_flow, sweep_flows

UNFED = 'tidegate_cutover_unfed{alias="search.articles"}'


@pytest.fixture
def steps(shop: Shop, hand: Hand) -> Steps:  # noqa: F811  a fixture
    """A cutover that was begun while readers see the index before."""
    shop.add(1, 20)
    Steps(shop, hand, reindex, "v1").cut_over()
    return Steps(shop, hand, reindex, "v2")


@pytest.fixture
def left(steps: Steps) -> Steps:
    """Readers were switched to an index, and then its run was cancelled, before it had a feed."""
    steps.fill()
    steps.compare()
    with steps.following():
        wait_until(lambda: steps.offset() is not None)
        while not isinstance(steps.perform("switch"), TaskSucceeded):
            wait_until(lambda: steps.is_ready("switch"))
        cancelled(steps, steps.run)
    return steps


def cancelled(steps: Steps, run: int) -> None:
    by_hand = steps.hand
    by_hand.do(cancel_flow, run, "an operator")
    by_hand.do(flow_tasks.put_back, by_hand.name, by_hand.do(flow_tasks.held_by, by_hand.name))
    wait_until(lambda: bool(by_hand.do(sweep_flows)) and by_hand.state(run) == "canceled")


def shown(steps: Steps) -> IndexStatus:
    (found,) = (it for it in indexes_of(steps.shop.database, reindex) if it.is_current)
    return found


def unfed(steps: Steps) -> str:
    (line,) = (it for it in metrics_text(steps.shop.database).splitlines() if it.startswith(UNFED))
    return line.removeprefix(UNFED).strip()


def test_an_index_that_was_without_a_feed_is_shown_and_given_one(left: Steps) -> None:
    assert (shown(left).index, shown(left).run, unfed(left)) == ("search.v2", None, "1.0")
    left.shop.do("UPDATE shop.articles SET title = 'while nobody looked' WHERE id = 3")
    run = feed(left.shop.database, reindex, "v2").id
    assert (shown(left).run, unfed(left)) == (run, "0.0")
    with flow_worker(left.shop.database, reindex.feed):
        wait_until(lambda: left.shop.differences("v2") == [])


def test_the_run_that_makes_an_index_keeps_it_until_it_has_a_feed(steps: Steps) -> None:
    steps.fill()
    steps.compare()
    with steps.following():
        wait_until(lambda: steps.offset() is not None)
        while not isinstance(steps.perform("switch"), TaskSucceeded):
            wait_until(lambda: steps.is_ready("switch"))
        assert (shown(steps).run, unfed(steps)) == (steps.run, "0.0")


def test_an_alias_that_was_dropped_is_not_missed(left: Steps) -> None:
    left.shop.do("DROP VIEW search.articles")
    assert UNFED not in metrics_text(left.shop.database)


def test_an_index_is_given_a_feed_as_often_as_its_feed_was_cancelled(left: Steps) -> None:
    runs = []
    for _ in range(2):
        runs.append(feed(left.shop.database, reindex, "v2").id)
        cancelled(left, runs[-1])
    assert runs[0] != runs[1]


def test_an_index_with_a_feed_is_given_no_other(left: Steps) -> None:
    run = feed(left.shop.database, reindex, "v2").id
    with pytest.raises(FeedRefused) as refused:
        feed(left.shop.database, reindex, "search.v2")
    assert refused.value.index == "search.v2"
    assert refused.value.reason.startswith(f"run {run} of articles-feed")


def test_an_index_that_was_never_whole_is_given_no_feed(steps: Steps) -> None:
    steps.begin()
    steps.perform("create")
    cancelled(steps, steps.run)
    with pytest.raises(FeedRefused, match="never switched to"):
        feed(steps.shop.database, reindex, "v2")


def test_an_index_whose_changes_were_not_kept_is_given_no_feed(left: Steps) -> None:
    left.shop.do("DELETE FROM tidegate_log.consumer WHERE name LIKE 'search.v2 %'")
    with pytest.raises(NotFollowed):
        feed(left.shop.database, reindex, "v2")


def test_an_index_that_is_being_retired_is_given_no_feed(left: Steps) -> None:
    reverse(left.shop.database, reindex, by="a clerk", allow_stale=True)
    with reindex.opened(left.shop.database) as (_, indexes):
        indexes.give_up("v2", left.shop.database.transact)
    with pytest.raises(IndexDiffers, match="being retired"):
        feed(left.shop.database, reindex, "v2")


def test_only_indexes_are_given_feeds(left: Steps) -> None:
    with pytest.raises(IndexDiffers, match="not an index"):
        feed(left.shop.database, reindex, "v3")


def test_readers_do_not_go_back_to_an_index_without_a_feed(left: Steps) -> None:
    (before,) = (it for it in indexes_of(left.shop.database, reindex) if not it.is_current)
    assert before.run is not None
    cancelled(left, before.run)
    with pytest.raises(IndexUnfed) as refused:
        reverse(left.shop.database, reindex, by="a clerk", bound=0.1)
    assert refused.value.index == "search.v1"


@pytest.fixture
def command(tmp_path: Path, left: Steps) -> Callable[..., Result]:
    where = ["--deployment", str(tmp_path), "--database", left.shop.url]

    def run(name: str, *given: str) -> Result:
        arguments = ["cutover", name, "tests.crash.cutover:reindex", *given, *where]
        return CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})

    return run


def test_commands_show_an_index_without_a_feed_and_start_one(
    left: Steps, command: Callable[..., Result]
) -> None:
    assert "readers use search.v2, which has no feed" in command("show").output
    said = command("feed", "v2")
    assert said.exit_code == 0, said.output
    assert said.output == f"run {shown(left).run} keeps v2 fresh\n"
    assert "has no feed" not in command("show").output
    again = command("feed", "v2")
    assert (again.exit_code, "is given no feed" in again.output) == (1, True)
