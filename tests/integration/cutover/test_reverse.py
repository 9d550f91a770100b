"""Readers go back to the index before, and indexes are removed, from Python and from commands."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic

import pytest
from typer.testing import CliRunner, Result

from tests.crash.cutover import reindex
from tests.integration.cutover.conftest import SOURCE, Shop
from tests.integration.cutover.manual_steps import Steps
from tests.integration.flows.conftest import Hand, hand  # noqa: F401  a fixture
from tests.waiting import wait_until
from tidegate.cli import app
from tidegate.cutover import (
    PostgresTable,
    PostgresTarget,
    Reindex,
    indexes_of,
    operations,
    retire,
    reverse,
)
from tidegate.errors import IndexBehind, IndexInUse, NothingToReverse
from tidegate.flows.worker.worker import FlowWorker, flow_worker
from tidegate.store import Database
from tidegate.store.flows.runs import cancel_flow, flow_run

REINDEX = "tests.crash.cutover:reindex"


@dataclass
class Alias:
    """Two indexes that are kept fresh while somebody works for their feeds."""

    shop: Shop
    hand: Hand
    feeds: dict[str, int]

    @property
    def database(self) -> Database:
        return self.shop.database

    def add(self, index: str) -> None:
        """A cutover to another index, which leaves a feed."""
        made = Steps(self.shop, self.hand, reindex, index).cut_over()
        self.feeds[index] = made.feed

    def shown(self) -> str:
        (found,) = (it.index for it in indexes_of(self.database, reindex) if it.is_current)
        return found

    def flow_worker(self) -> AbstractContextManager[FlowWorker]:
        return flow_worker(self.database, reindex.feed)


@pytest.fixture
def alias(shop: Shop, hand: Hand) -> Alias:  # noqa: F811  a fixture
    shop.add(1, 20)
    made = Alias(shop, hand, {})
    for index in ("v1", "v2"):
        made.add(index)
    return made


@pytest.fixture
def command(tmp_path: Path, alias: Alias) -> Callable[..., Result]:
    where = ["--deployment", str(tmp_path), "--database", alias.database.url]

    def run(name: str, *given: str) -> Result:
        arguments = ["cutover", name, REINDEX, *given, *where]
        return CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})

    return run


def test_readers_go_back_and_forth_and_miss_nothing(alias: Alias) -> None:
    with alias.flow_worker():
        for expected in ("search.v1", "search.v2"):
            alias.shop.do("UPDATE shop.articles SET title = %s WHERE id = 3", expected)
            assert reverse(alias.database, reindex, by="a clerk") == expected
            assert alias.shown() == expected
            title = alias.shop.do("SELECT title FROM search.articles WHERE id = 3")
            assert title == [(expected,)]


def test_readers_do_not_go_back_to_an_index_that_is_behind(alias: Alias) -> None:
    alias.shop.do("UPDATE shop.articles SET title = 'new' WHERE id <= 3")
    with pytest.raises(IndexBehind) as behind:
        reverse(alias.database, reindex, by="a clerk", bound=0.2)
    assert (behind.value.index, behind.value.changes) == ("search.v1", "3 changes")
    assert behind.value.held_up_by == "check that workers for its feed are running"
    assert alias.shown() == "search.v2"
    assert reverse(alias.database, reindex, by="a clerk", allow_stale=True) == "search.v1"
    assert alias.shown() == "search.v1"


def test_there_has_to_be_an_index_to_go_back_to(
    shop: Shop,
    hand: Hand,  # noqa: F811  a fixture
) -> None:
    only = Alias(shop, hand, {})
    with pytest.raises(NothingToReverse, match="never pointed to another"):
        reverse(shop.database, reindex, by="a clerk")
    only.add("v1")
    with pytest.raises(NothingToReverse, match="never pointed to another"):
        reverse(shop.database, reindex, by="a clerk")


def test_readers_do_not_go_back_to_an_index_that_was_removed(alias: Alias) -> None:
    with alias.flow_worker():
        retire(alias.database, reindex, "v1")
    with pytest.raises(NothingToReverse, match="v1 was removed"):
        reverse(alias.database, reindex, by="a clerk")


def test_an_alias_without_a_schema_goes_back_as_well(
    shop: Shop,
    hand: Hand,  # noqa: F811  a fixture
) -> None:
    plain = Reindex("articles", SOURCE, PostgresTarget("found"))
    for index in ("v1", "v2"):
        Steps(shop, hand, plain, index).cut_over()
    assert reverse(shop.database, plain, by="a clerk", allow_stale=True) == "public.v1"
    statuses = indexes_of(shop.database, plain)
    assert [it.index for it in statuses] == ["public.v1", "public.v2"]
    assert all(it.switched_at for it in statuses)


def test_readers_go_back_to_a_stale_index_while_the_source_is_down(
    alias: Alias, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "LAG_BOUND", 0.5)
    unreachable = PostgresTable("shop.articles", url="host=127.0.0.1 port=1 connect_timeout=1")
    down = Reindex("articles", unreachable, reindex.target)
    begun = monotonic()
    assert reverse(alias.database, down, by="a clerk", allow_stale=True) == "search.v1"
    assert monotonic() - begun < 30
    noted = "SELECT index, pending FROM tidegate.alias_switch ORDER BY id DESC LIMIT 1"
    assert alias.shop.do(noted) == [("search.v1", None)]


def test_an_index_of_a_run_that_was_cancelled_is_shown_while_it_keeps_the_log(
    alias: Alias,
) -> None:
    others = Steps(alias.shop, alias.hand, reindex, "v3")
    others.begin()
    others.perform("create")
    alias.hand.do(cancel_flow, others.run, "not wanted")
    (found,) = (it for it in indexes_of(alias.database, reindex) if it.index == "search.v3")
    assert (found.run, found.is_here, found.offset is not None) == (None, True, True)


def test_what_keeps_the_log_and_is_not_here_is_shown(
    alias: Alias, command: Callable[..., Result]
) -> None:
    with reindex.source.open(alias.database) as source:
        source.register("search.v1 (of another deployment)")
    found = [it.index for it in indexes_of(alias.database, reindex) if not it.is_here]
    assert found == ["search.v1 (of another deployment)"]
    assert "also retained for search.v1 (of another deployment)" in command("show").output


def test_an_index_that_readers_see_or_that_is_being_made_is_not_removed(alias: Alias) -> None:
    with pytest.raises(IndexInUse, match="shows it; reverse"):
        retire(alias.database, reindex, "v2")
    others = Steps(alias.shop, alias.hand, reindex, "v3")
    others.begin()
    others.perform("create")
    with pytest.raises(IndexInUse, match=f"run {others.run} is creating it"):
        retire(alias.database, reindex, "v3")


def test_an_index_is_removed_with_its_feed_and_nothing_is_kept_for_it(alias: Alias) -> None:
    with alias.flow_worker():
        retire(alias.database, reindex, "v1")
    assert [it.index for it in indexes_of(alias.database, reindex)] == ["search.v2"]
    asked = partial(flow_run, run=alias.feeds["v1"])
    assert alias.database.transact(asked).state.value == "canceled"
    kept = alias.shop.do("SELECT split_part(name, ' ', 1) FROM tidegate_log.consumer")
    assert kept == [("search.v2",)]


def test_commands_show_indexes_and_lead_readers_back(
    alias: Alias, command: Callable[..., Result]
) -> None:
    with alias.flow_worker():
        wait_until(lambda: all(it.pending == 0 for it in indexes_of(alias.database, reindex)))
        said = command("show")
        assert said.exit_code == 0, said.output
        lines = [line.split() for line in said.output.splitlines()]
        assert lines[0] == ["search.articles"]
        assert [it[0] for it in lines[2:]] == ["search.v2", "search.v1"]
        assert lines[2][1] == "current"
        said = command("reverse")
        assert (said.exit_code, said.output) == (0, "search.articles points to search.v1\n")
        said = command("retire", "v2")
        assert (said.exit_code, said.output) == (0, "v2 is removed\n")
        (left,) = json.loads(command("show", "--json").stdout)
        assert (left["index"], left["is_current"]) == ("search.v1", True)
        assert left["run"] == alias.feeds["v1"]


def test_a_refused_command_explains_what_to_do(
    alias: Alias, command: Callable[..., Result]
) -> None:
    alias.shop.do("UPDATE shop.articles SET title = 'new' WHERE id = 3")
    said = command("reverse", "--bound", "0.1")
    assert said.exit_code == 1
    assert "search.v1 is 1 change" in said.output
    assert "--stale" in said.output
    assert "shows it; reverse" in command("retire", "v2").output
    assert command("reverse", "--stale").output == "search.articles points to search.v1\n"


def test_a_cutover_is_begun_once_under_the_name_of_its_index(
    alias: Alias, command: Callable[..., Result]
) -> None:
    first, again = command("start", "v3"), command("start", "v3")
    assert first.exit_code == 0, first.output
    assert first.output == again.output
    assert "of flow 'articles' is running" in first.output
