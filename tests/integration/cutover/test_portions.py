"""The portions of a table leave out nothing, whoever dies while it is divided and changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.integration.cutover.conftest import Shop, declared
from tests.integration.cutover.manual_steps import Steps
from tests.integration.flows.conftest import Hand, hand  # noqa: F401  a fixture
from tidegate.cutover.source import TableSource
from tidegate.flows.worker.executor import TaskExecutor
from tidegate.flows.worker.task_context import TaskContext
from tidegate.store.cutover.tables import Key
from tidegate.store.flows import tasks as flow_tasks

BOUNDS = 3
"""How many are found before the worker that looks for them is no more."""


def is_let_go(context: TaskContext) -> None:
    context.cancel("the worker stops")


def dies(_: TaskContext) -> None:
    raise ConnectionError("the worker dies")


@pytest.mark.parametrize("what_happens", [is_let_go, dies])
def test_bounds_that_are_not_found_again_leave_no_gap(
    shop: Shop,
    hand: Hand,  # noqa: F811  a fixture
    monkeypatch: pytest.MonkeyPatch,
    what_happens: Callable[[TaskContext], None],
) -> None:
    shop.add(1, 1000)
    steps = Steps(shop, hand, declared(portion=100))
    steps.begin()
    steps.perform("create")
    (claim,) = hand.claim("articles/backfill")
    context = TaskContext(shop.database, steps.reindex.flow.definition, claim)
    found: list[Key | None] = []

    def counted(self: TableSource, low: Key | None, rows: int) -> Key | None:
        found.append(bound_after(self, low, rows))
        if len(found) == BOUNDS:
            what_happens(context)
        return found[-1]

    bound_after = TableSource.bound_after
    with monkeypatch.context() as patched:
        patched.setattr(TableSource, "bound_after", counted)
        TaskExecutor(shop.database).execute(context)
    hand.do(flow_tasks.put_back, hand.name, [claim])
    assert len(found) == BOUNDS
    shop.do("DELETE FROM shop.articles WHERE id <= 90 OR id BETWEEN 150 AND 289")
    steps.perform("backfill")
    steps.fill_portions()
    steps.go_on()
    assert shop.differences("articles_v1") == []
