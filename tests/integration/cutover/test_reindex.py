"""A whole cutover with real Spark and PostgreSQL, in one process."""

from __future__ import annotations

from tests.integration.cutover.conftest import Hall
from tidegate.cutover.values import Cutover


def test_an_index_is_backfilled_verified_and_switched_to(hall: Hall) -> None:
    hall.shop.add(1, 1000)
    run = hall.finish("articles_v1")
    found = run.result("finish")
    assert isinstance(found, Cutover)
    assert (found.index, found.previous, found.rows) == ("search.articles_v1", None, 1000)
    assert hall.shop.differences("articles_v1") == []
    query = "SELECT count(*) FROM search.articles WHERE document @@ to_tsquery('english', 'river')"
    assert hall.shop.do(query) == [(1000 - 1000 // 7,)]
