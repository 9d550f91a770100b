"""Cutovers are begun one at a time, and under names that mean something."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.cutover.by_hand import Steps
from tests.integration.cutover.conftest import Shop, declared
from tests.integration.flows.conftest import Hand, hand  # noqa: F401  a fixture
from tests.waiting import wait_until
from tidegate.cutover import cut_over, retire
from tidegate.errors import AliasBusy, CutoverRefused
from tidegate.flows.worker.executor import Failed
from tidegate.flows.worker.worker import working
from tidegate.store.flows.runs import cancel_flow, pause_flow, resume_flow


def test_a_cutover_that_is_begun_again_is_the_same(shop: Shop) -> None:
    first = cut_over(shop.database, declared(), "articles_v1")
    assert cut_over(shop.database, declared(), "articles_v1") == first


def test_an_alias_has_one_cutover_at_a_time(shop: Shop) -> None:
    first = cut_over(shop.database, declared(), "articles_v1")
    with pytest.raises(CutoverRefused) as refused:
        cut_over(shop.database, declared(), "articles_v2")
    assert f"run {first} " in refused.value.reason
    shop.database.transact(lambda c: cancel_flow(c, first, "not wanted"))
    assert cut_over(shop.database, declared(), "articles_v2") > first


def test_of_several_that_are_begun_at_once_one_is(shop: Shop) -> None:
    def begun(number: int) -> int | None:
        try:
            return cut_over(shop.database, declared(), f"articles_v{number}")
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
    with working(shop.database, declared().feed):
        retire(shop.database, declared(), "articles_v1")
    with pytest.raises(CutoverRefused):
        cut_over(shop.database, declared(), "articles_v1")


def test_an_index_cannot_have_the_name_of_its_alias(shop: Shop) -> None:
    with pytest.raises(CutoverRefused):
        cut_over(shop.database, declared(), "articles")


def test_a_cutover_whose_first_step_failed_can_be_tried_again_under_its_name(
    shop: Shop,
    hand: Hand,  # noqa: F811  a fixture
) -> None:
    shop.do("ALTER TABLE shop.articles DROP CONSTRAINT articles_pkey")
    run = cut_over(shop.database, declared(), "articles_v1")
    steps = Steps(shop, hand, run=run)
    steps.perform("create")
    assert hand.state(run) == "failed"
    assert cut_over(shop.database, declared(), "articles_v1") == run


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
        while not isinstance(outcome, Failed):
            wait_until(lambda: late.is_ready("switch"))
            outcome = late.perform("switch")
    assert outcome.is_final
    assert outcome.error.startswith("CutoverRefused: ")
    assert late.shown() == "search.articles_v2"
