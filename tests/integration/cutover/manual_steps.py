"""A cutover whose steps are taken by hand, so that it needs no Spark and no worker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Thread

import msgspec

from tests.integration.cutover.conftest import Shop, declared
from tests.integration.flows.conftest import Hand
from tests.waiting import wait_until
from tidegate.cutover import Reindex
from tidegate.cutover.values import BackfilledPortion, Cutover, Portion
from tidegate.flows.worker.executor import TaskExecutor, TaskFailed, TaskOutcome, TaskSucceeded
from tidegate.flows.worker.task_context import TaskContext
from tidegate.store import Database
from tidegate.store.cutover import change_log
from tidegate.store.cutover.tables import TableName
from tidegate.store.flows import tasks as flow_tasks
from tidegate.store.flows.runs import flow_state


@dataclass
class Steps:
    """A cutover whose steps begin when a test says so; what Spark does is done here."""

    shop: Shop
    hand: Hand
    reindex: Reindex = field(default_factory=declared)
    index: str = "articles_v1"
    run: int = 0
    key: str | None = None

    def begin(self) -> None:
        given = f'{{"index": "{self.index}"}}'
        self.run = self.hand.begin(self.reindex.flow, given, self.key)

    def perform(
        self, step: str, kind: type[TaskContext] = TaskContext, *, is_final: bool = True
    ) -> TaskOutcome:
        (claim,) = self.hand.claim(f"articles/{step}")
        context = kind(self.shop.database, self.reindex.flow.definition, claim)
        return self.settle(context, is_final=is_final)

    def settle(self, context: TaskContext, *, is_final: bool = True) -> TaskOutcome:
        outcome = TaskExecutor(self.shop.database).execute(context)
        if isinstance(outcome, TaskSucceeded):
            self.hand.complete([outcome.claim], outcome.json)
        elif isinstance(outcome, TaskFailed):
            given = (outcome.claim, outcome.error, 0.0)
            self.hand.do(flow_tasks.fail, *given, is_final=is_final)
        return outcome

    def fill(self) -> None:
        """Everything up to the comparison."""
        self.begin()
        self.perform("create")
        self.perform("backfill")
        self.fill_portions()

    def fill_portions(self) -> None:
        """What was yielded is in the index, and is to be compared."""
        for claim in self.hand.claim("articles/backfill[]"):
            portion = msgspec.json.decode(claim.payload or "", type=Portion)
            filled = BackfilledPortion(portion, self._write(portion))
            self.hand.complete([claim], msgspec.json.encode(filled).decode())
        self.perform("backfilled")
        self.perform("verify")

    def _write(self, portion: Portion) -> int:
        with self.reindex.opened(self.shop.database) as (source, indexes):
            shape = source.shape(indexes.columns(portion.index))
            read, table = change_log.rows_within, TableName.parse("shop.articles")
            with Database(source.url).attach() as there:
                rows = there.transact(lambda c: read(c, table, shape, portion.within))
            indexes.write(portion.index, rows)
            return int(rows.num_rows)

    def compare(self) -> list[TaskOutcome]:
        definition, database = self.reindex.flow.definition, self.shop.database
        claims = self.hand.claim("articles/verify[]")
        return [self.settle(TaskContext(database, definition, it)) for it in claims]

    @contextmanager
    def following(self) -> Iterator[Thread]:
        """The follower at work, at least until the block is left."""
        (claim,) = self.hand.claim("articles/consume")
        context = TaskContext(self.shop.database, self.reindex.flow.definition, claim)
        thread = Thread(target=self.settle, args=(context,), daemon=True)
        thread.start()
        try:
            yield thread
        finally:
            context.cancel("the test is over")
            thread.join(30)

    def cut_over(self) -> Cutover:
        """All of it, while nothing goes wrong."""
        self.fill()
        return self.go_on()

    def go_on(self) -> Cutover:
        """From the comparison to the end."""
        self.compare()
        with self.following() as follower:
            wait_until(lambda: self.offset() is not None)
            while not isinstance(self.perform("switch"), TaskSucceeded):
                wait_until(lambda: self.is_ready("switch"))
            wait_until(lambda: not follower.is_alive())
        return self.finish()

    def finish(self) -> Cutover:
        outcome = self.perform("finish")
        assert isinstance(outcome, TaskSucceeded)
        return msgspec.json.decode(outcome.json, type=Cutover)

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
        return self.value("consumer_offset")

    def value(self, key: str) -> str | None:
        _, values = self.hand.do(flow_state, self.run)
        return values[key].json
