"""Cutovers are begun one at a time, and under names that mean something."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.cutover.conftest import Shop, declared
from tests.integration.cutover.manual_steps import Steps
from tests.integration.flows.conftest import Hand, hand  # noqa: F401  a fixture
from tests.waiting import wait_until
from tidegate.cutover import retire, start_cutover
from tidegate.errors import AliasBusy, CutoverRefused
from tidegate.flows.worker.executor import TaskFailed
from tidegate.flows.worker.worker import flow_worker
from tidegate.store.flows.runs import pause_flow, resume_flow


def test_a_cutover_that_is_begun_again_is_the_same(shop: Shop) -> None:
    first = start_cutover(shop.database, declared(), "articles_v1").id
    assert start_cutover(shop.database, declared(), "articles_v1").id == first


def test_an_alias_has_one_cutover_at_a_time(shop: Shop) -> None:
    first = start_cutover(shop.database, declared(), "articles_v1")
    with pytest.raises(CutoverRefused) as refused:
        start_cutover(shop.database, declared(), "articles_v2")
    assert f"run {first.id} " in refused.value.reason
    first.cancel("not wanted")
    assert start_cutover(shop.database, declared(), "articles_v2").id > first.id


def test_of_several_that_are_begun_at_once_one_is(shop: Shop) -> None:
    def begun(number: int) -> int | None:
        try:
            return start_cutover(shop.database, declared(), f"articles_v{number}").id
        except (AliasBusy, CutoverRefused):
            return None

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(begun, range(4)))
    assert len([it for it in found if it is not None]) == 1


def test_the_name_of_an_index_that_was_removed_is_not_given_again(
    shop: Shop,
    hand: Hand,  # noqa: F811  a fixture
) -> None:
    shop.add(1, 20)
    for index in ("articles_v1", "articles_v2"):
        Steps(shop, hand, index=index, key=index).cut_over()
    with flow_worker(shop.database, declared().feed):
        retire(shop.database, declared(), "articles_v1")
    with pytest.raises(CutoverRefused):
        start_cutover(shop.database, declared(), "articles_v1")


def test_an_index_cannot_have_the_name_of_its_alias(shop: Shop) -> None:
    with pytest.raises(CutoverRefused):
        start_cutover(shop.database, declared(), "articles")


def test_a_cutover_whose_first_step_failed_can_be_tried_again_under_its_name(
    shop: Shop,
    hand: Hand,  # noqa: F811  a fixture
) -> None:
    shop.do("ALTER TABLE shop.articles DROP CONSTRAINT articles_pkey")
    run = start_cutover(shop.database, declared(), "articles_v1").id
    steps = Steps(shop, hand, run=run)
    steps.perform("create")
    assert hand.state(run) == "failed"
    assert start_cutover(shop.database, declared(), "articles_v1").id == run


def test_a_cutover_that_is_tried_again_does_not_take_readers_back(
    shop: Shop,
    hand: Hand,  # noqa: F811  a fixture
) -> None:
    shop.add(1, 20)
    late = Steps(shop, hand, index="articles_v1")
    late.fill()
    late.compare()
    hand.do(pause_flow, late.run)
    Steps(shop, hand, index="articles_v2").cut_over()
    hand.do(resume_flow, late.run)
    with late.following():
        wait_until(lambda: late.offset() is not None)
        outcome = late.perform("switch")
        while not isinstance(outcome, TaskFailed):
            wait_until(lambda: late.is_ready("switch"))
            outcome = late.perform("switch")
    assert outcome.is_final
    assert outcome.error.startswith("CutoverRefused: ")
    assert late.shown() == "search.articles_v2"
