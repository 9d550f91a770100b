"""The cutover as a flow, and the feed that keeps an index fresh after it.

Step functions run again after a failure, from their first line: everything here may be repeated.
Values that must not change between attempts are in the flow's state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import msgspec

from tidegate.cutover.backfill import backfill
from tidegate.cutover.change_consumer import ChangeApplier, ChangeConsumer
from tidegate.cutover.decide import rows_of_whole
from tidegate.cutover.targets import Indexes, Target
from tidegate.cutover.values import (
    BackfilledPortion,
    ConsumedChanges,
    Created,
    Cutover,
    CutoverRequest,
    FeedRequest,
    Portion,
    Switched,
    VerifiedPortion,
)
from tidegate.cutover.verify import verify
from tidegate.errors import CutoverRefused, GateClosed
from tidegate.faults import crash_point
from tidegate.flows import Backoff, Context, Flow, all_of, is_set, reached
from tidegate.flows.client import start_flow
from tidegate.store.cutover.indexes import SwitchRecord, switch_of, switches
from tidegate.store.flows.runs import flow_state

if TYPE_CHECKING:
    from tidegate.cutover.source import PostgresTable, TableSource
    from tidegate.flows.worker.task_context import TaskContext
    from tidegate.store import Connection, Database

OFTEN = Backoff(first=0.2, longest=5.0)
RETRIES = 100
"""Of a portion, or of the switch: a target may be unavailable for some minutes."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes and timeouts of a cutover."""

    portion: int = 200_000
    """Rows that one Spark job backfills, and repeats after a failure."""
    piece: int = 20_000
    """Rows that one Spark task holds in memory."""
    gate_timeout: float = 3600.0
    """Seconds for which the switch waits for the change consumer."""
    patience: float = 600.0
    """Seconds for which failures of a source or a target are retried."""


class Reindex:
    """The declaration of a cutover: `flow` creates an index and switches, `feed` keeps it fresh.

    Reindex("articles", PostgresTable("shop.articles"), PostgresTarget("search.articles"))
    """

    def __init__(
        self,
        name: str,
        source: PostgresTable,
        target: Target,
        limits: Limits = Limits(),  # noqa: B008  a frozen value
        master: str = "local[*]",
    ) -> None:
        self.name = name
        self.source = source
        self.target = target
        self._limits = limits
        self._master = master
        self.feed = Flow(f"{name}-feed")
        self.feed_offset = self.feed.state("consumer_offset", int, monotonic=True)
        self._feed_blocked_by = self.feed.state("held_up_by", str)
        self.flow = Flow(name)
        self.backfill_done = self.flow.state("backfill_done", bool)
        self.consumer_offset = self.flow.state("consumer_offset", int, monotonic=True)
        self.target_watermark = self.flow.state("target_watermark", int)
        self.switch_done = self.flow.state("switch_done", bool)
        self.previous_index = self.flow.state("previous_index", str)
        self.drain_watermark = self.flow.state("drain_watermark", int)
        self._blocked_by = self.flow.state("held_up_by", str)
        self._gate = all_of(
            is_set(self.backfill_done), reached(self.consumer_offset, self.target_watermark)
        )
        self._declare_feed()
        self._declare_flow()

    @property
    def flows(self) -> tuple[Flow, Flow]:
        """The flows that a worker has to serve."""
        return self.flow, self.feed

    def _declare_feed(self) -> None:
        self.feed.step(
            name="feed",
            retries=RETRIES,
            backoff=OFTEN,
            resumable=True,
            writes=(self.feed_offset, self._feed_blocked_by),
        )(self._keep_fresh)

    def _declare_flow(self) -> None:
        flow = self.flow
        create = flow.step(name="create", retries=5, backoff=OFTEN)(self._create)
        portions = flow.generator(name="backfill", depends_on=create, retries=20, backoff=OFTEN)(
            self._portions
        )
        portions.handler(name="backfill_portion", retries=RETRIES, backoff=OFTEN, concurrency=1)(
            self._backfill
        )
        backfilled = flow.reduce(portions, name="backfilled", writes=self.backfill_done)(
            self._backfilled
        )
        consume = flow.step(
            name="consume",
            depends_on=create,
            retries=RETRIES,
            backoff=OFTEN,
            resumable=True,
            writes=(self.consumer_offset, self.drain_watermark, self._blocked_by),
            reads=(self.switch_done, self.target_watermark),
        )(self._consume)
        verified = flow.map_step(
            name="verify",
            depends_on=(portions, backfilled),
            retries=3,
            backoff=OFTEN,
            reads=self.consumer_offset,
        )(self._verify)
        switch = flow.step(
            name="switch",
            depends_on=(create, verified),
            retries=RETRIES,
            backoff=OFTEN,
            writes=(self.target_watermark, self.switch_done, self.previous_index),
            reads=(
                self.backfill_done,
                self.consumer_offset,
                self.target_watermark,
                self.switch_done,
            ),
        )(self._switch)
        flow.step(name="finish", depends_on=(switch, consume), retries=20, backoff=OFTEN)(
            self._finish
        )

    # ── steps of the flow ──

    def _create(self, context: Context, request: CutoverRequest) -> Created:
        with self._open(context) as (source, indexes):
            source.start_log()
            indexes.create(request.index, source.shape())
            identity = indexes.identity(request.index)
            if not indexes.is_empty(request.index):
                source.registered(identity)  # its rows are only up to date from there on
            return Created(request.index, source.register(identity))

    def _portions(self, context: Context, created: Created) -> Iterator[Portion]:
        """Each bound is saved before it is used, since concurrent changes would move it."""
        with self._open(context) as (source, _):
            if context.cursor is None:
                high = source.bound_after(None, self._limits.portion)
                portion = Portion(created.index, None, high)
            else:
                portion = msgspec.convert(context.cursor, Portion)
            while True:
                context.save_cursor(portion)
                yield portion
                if portion.high is None:
                    return
                high = source.bound_after(portion.high, self._limits.portion)
                portion = Portion(created.index, portion.high, high)

    def _backfill(self, context: Context, portion: Portion) -> BackfilledPortion:
        own = _task(context).database
        with self.source.open(own) as source:
            rows = backfill(source, self.target, own, portion, self._limits.piece, self._master)
        return BackfilledPortion(portion, rows)

    def _backfilled(self, context: Context, portions: Iterator[BackfilledPortion]) -> int:
        rows = rows_of_whole(portions)
        context.set_state(self.backfill_done, True)
        return rows

    def _consume(self, context: Context, created: Created) -> ConsumedChanges:
        with self._open(context) as (source, indexes):
            offset = context.set_state_once(self.consumer_offset, created.offset)
            applier = ChangeApplier(source, indexes, indexes.qualified(created.index), offset)
            self._until(
                context, applier, source, lambda: self._is_drained(context, source, applier)
            )
            return ConsumedChanges(applier.applied, applier.offset)

    def _is_drained(self, context: Context, source: TableSource, applier: ChangeApplier) -> bool:
        """Whether everything is applied that was committed when the switch was seen."""
        if not context.get_state(self.switch_done):
            return False
        drained = context.get_state(self.drain_watermark)
        if drained is None:
            drained = context.set_state_once(self.drain_watermark, source.head())
        return applier.offset >= drained

    def _verify(self, context: Context, backfilled: BackfilledPortion, _: int) -> VerifiedPortion:
        with self._open(context) as (source, indexes):
            return verify(
                source,
                indexes,
                backfilled.portion,
                lambda: context.get_state(self.consumer_offset) or 0,
            )

    def _switch(
        self, context: Context, created: Created, verified: Iterator[VerifiedPortion]
    ) -> Switched:
        """Switch once: a later reverse is left as it is."""
        with self._open(context) as (source, indexes):
            index = indexes.qualified(created.index)
            if not context.get_state(self.switch_done):
                self._wait_and_switch(context, index, source, indexes)
                crash_point("cutover.switch.after_commit")
        rows = sum(portion.rows for portion in verified)
        switch = _task(context).database.transact(lambda c: switch_of(c, context.run))
        if switch is None:  # the alias was switched manually
            return Switched(index, None, rows, 0, 0.0)
        return Switched(index, switch.previous, rows, switch.pending or 0, switch.staleness or 0.0)

    def _wait_and_switch(
        self, context: Context, index: str, source: TableSource, indexes: Indexes
    ) -> None:
        context.set_state_once(self.target_watermark, source.head())
        context.wait_for_state(self._gate, timeout=self._limits.gate_timeout)
        lag = source.lag(context.get_state(self.consumer_offset) or 0)
        previous = context.set_state_once(self.previous_index, indexes.current() or "")
        noted = SwitchRecord(
            f"run {context.run} of {self.name}", context.run, lag, previous or None
        )
        indexes.switch(index, noted, partial(self._together, context, index, indexes.alias))

    def _together(
        self, context: Context, index: str, alias: str, work: Callable[[Any], None]
    ) -> None:
        def checked(connection: Connection) -> None:
            self._check_gate(connection, context.run, index)
            self._check_latest(connection, context.run, index, alias)
            work(connection)
            crash_point("cutover.switch.before_commit")

        context.with_state({self.switch_done: True}, checked)

    def _check_latest(self, connection: Connection, run: int, index: str, alias: str) -> None:
        """A retried cutover does not switch readers back to an older index."""
        later = [
            it.run for it in switches(connection, alias) if it.run is not None and it.run > run
        ]
        if later:
            raise CutoverRefused(index, f"run {max(later)} has switched {alias} since")

    def _check_gate(self, connection: Connection, run: int, index: str) -> None:
        """Check the gate again in the transaction that switches."""
        _, values = flow_state(connection, run)
        known = {name: it.json for name, it in values.items()}
        done, offset, target = (
            known.get(it.name)
            for it in (self.backfill_done, self.consumer_offset, self.target_watermark)
        )
        if done != "true" or offset is None or target is None or int(offset) < int(target):
            reason = f"backfill_done is {done}, consumer_offset is {offset} of {target}"
            raise GateClosed(self.target.alias, index, reason)

    def _finish(self, context: Context, switched: Switched, followed: ConsumedChanges) -> Cutover:
        request = FeedRequest(switched.index, followed.offset)
        feed = start_flow(_task(context).database, self.feed, request, key=context.identity)
        return Cutover(
            switched.index,
            switched.previous,
            switched.rows,
            followed.changes,
            switched.pending,
            switched.staleness,
            feed.id,
        )

    # ── the feed ──

    def _keep_fresh(self, context: Context, request: FeedRequest) -> None:
        with self._open(context) as (source, indexes):
            offset = context.set_state_once(self.feed_offset, request.offset)
            applier = ChangeApplier(source, indexes, request.index, offset)
            self._until(context, applier, source, lambda: False)

    # ── helpers ──

    def _until(
        self,
        context: Context,
        applier: ChangeApplier,
        source: TableSource,
        is_over: Callable[[], bool],
    ) -> None:
        consumer = ChangeConsumer(
            applier,
            source,
            store_offset=lambda offset: context.set_state("consumer_offset", offset),
            report_blocked=lambda text: context.set_state("held_up_by", text),
            patience=self._limits.patience,
            check=context.check,
        )
        is_gated = context.step == "consume"
        while True:
            context.check()
            watermark = context.get_state(self.target_watermark) if is_gated else None
            pause = consumer.round(watermark)
            if is_over():
                return
            _task(context).wait_cancelled(pause)

    @contextmanager
    def _open(self, context: Context) -> Iterator[tuple[TableSource, Indexes]]:
        with self.opened(_task(context).database) as both:
            yield both

    @contextmanager
    def opened(self, own: Database) -> Iterator[tuple[TableSource, Indexes]]:
        """Open the source and the target."""
        with self.source.open(own) as source, self.target.open(own) as indexes:
            yield source, indexes


def _task(context: Context) -> TaskContext:
    """In a worker every context is one; the protocol hides the database from user code."""
    return cast("TaskContext", context)
