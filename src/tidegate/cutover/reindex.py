"""The canonical cutover as a flow, ready to use, and the feed that keeps an index fresh after it.

Functions of a flow are run again after a crash, from their first line: everything here may be
repeated, and what must not move in between is in the flow's state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import msgspec

from tidegate.cutover.backfill import fill
from tidegate.cutover.change_consumer import ChangeConsumer, ConsumerLoop
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
from tidegate.cutover.verify import compare
from tidegate.errors import CutoverRefused, GateClosed
from tidegate.faults import crash_point
from tidegate.flows import Backoff, Context, Flow, all_of, is_set, reached
from tidegate.flows.client import start_flow
from tidegate.store.cutover.indexes import SwitchRecord, switch_of, switches
from tidegate.store.flows.runs import flow_state

if TYPE_CHECKING:
    from tidegate.cutover.source import PostgresTable, Source
    from tidegate.flows.worker.task_context import TaskContext
    from tidegate.store import Connection, Database

OFTEN = Backoff(first=0.2, longest=5.0)
RETRIES = 100
"""Of a portion, or of the switch: a target may refuse for some minutes."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How a cutover is cut into pieces, and for how long it waits."""

    portion: int = 200_000
    """Rows that one Spark job fills in; what is done again when a worker dies with it."""
    piece: int = 20_000
    """Rows that one of Spark's workers has in its memory at once."""
    gate_timeout: float = 3600.0
    """Seconds for which the switch waits for the follower."""
    patience: float = 600.0
    """Seconds for which a source or a target may refuse before a follower gives up."""


class Reindex:
    """A cutover of one alias, declared: `flow` makes an index and switches to it, `feed` follows.

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
        self._feed_trouble = self.feed.state("held_up_by", str)
        self.flow = Flow(name)
        self.backfill_done = self.flow.state("backfill_done", bool)
        self.consumer_offset = self.flow.state("consumer_offset", int, monotonic=True)
        self.target_watermark = self.flow.state("target_watermark", int)
        self.switch_done = self.flow.state("switch_done", bool)
        self.previous_index = self.flow.state("previous_index", str)
        self.drain_watermark = self.flow.state("drain_watermark", int)
        self._trouble = self.flow.state("held_up_by", str)
        self._gate = all_of(
            is_set(self.backfill_done), reached(self.consumer_offset, self.target_watermark)
        )
        self._declare_feed()
        self._declare_flow()

    @property
    def flows(self) -> tuple[Flow, Flow]:
        """What a worker works for."""
        return self.flow, self.feed

    def _declare_feed(self) -> None:
        self.feed.step(
            name="feed",
            retries=RETRIES,
            backoff=OFTEN,
            resumable=True,
            writes=(self.feed_offset, self._feed_trouble),
        )(self._keep_fresh)

    def _declare_flow(self) -> None:
        flow = self.flow
        create = flow.step(name="create", retries=5, backoff=OFTEN)(self._create)
        portions = flow.generator(name="fill", depends_on=create, retries=20, backoff=OFTEN)(
            self._portions
        )
        portions.handler(name="fill_portion", retries=RETRIES, backoff=OFTEN, concurrency=1)(
            self._fill
        )
        filled = flow.reduce(portions, name="filled", writes=self.backfill_done)(self._filled)
        follow = flow.step(
            name="follow",
            depends_on=create,
            retries=RETRIES,
            backoff=OFTEN,
            resumable=True,
            writes=(self.consumer_offset, self.drain_watermark, self._trouble),
            reads=(self.switch_done, self.target_watermark),
        )(self._follow)
        compared = flow.map_step(
            name="compare",
            depends_on=(portions, filled),
            retries=3,
            backoff=OFTEN,
            reads=self.consumer_offset,
        )(self._compare)
        switch = flow.step(
            name="switch",
            depends_on=(create, compared),
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
        flow.step(name="finish", depends_on=(switch, follow), retries=20, backoff=OFTEN)(
            self._finish
        )

    # ── steps of the flow ──

    def _create(self, context: Context, wanted: CutoverRequest) -> Created:
        with self._open(context) as (source, indexes):
            source.begin_log()
            indexes.create(wanted.index, source.shape())
            identity = indexes.identity(wanted.index)
            if not indexes.is_empty(wanted.index):
                source.registered(identity)  # what is in it can only be followed from there
            return Created(wanted.index, source.register(identity))

    def _portions(self, context: Context, created: Created) -> Iterator[Portion]:
        """Each bound is saved before it is used: rows come and go, and it is not found again."""
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

    def _fill(self, context: Context, portion: Portion) -> BackfilledPortion:
        own = _task(context).database
        with self.source.open(own) as source:
            rows = fill(source, self.target, own, portion, self._limits.piece, self._master)
        return BackfilledPortion(portion, rows)

    def _filled(self, context: Context, filled: Iterator[BackfilledPortion]) -> int:
        rows = rows_of_whole(filled)
        context.set_state(self.backfill_done, True)
        return rows

    def _follow(self, context: Context, created: Created) -> ConsumedChanges:
        with self._open(context) as (source, indexes):
            offset = context.set_state_once(self.consumer_offset, created.offset)
            follower = ConsumerLoop(source, indexes, indexes.qualified(created.index), offset)
            self._until(
                context, follower, source, lambda: self._is_drained(context, source, follower)
            )
            return ConsumedChanges(follower.applied, follower.offset)

    def _is_drained(self, context: Context, source: Source, follower: ConsumerLoop) -> bool:
        """Whether everything is applied that was committed when the switch was noticed."""
        if not context.get_state(self.switch_done):
            return False
        drained = context.get_state(self.drain_watermark)
        if drained is None:
            drained = context.set_state_once(self.drain_watermark, source.head())
        return follower.offset >= drained

    def _compare(self, context: Context, filled: BackfilledPortion, _: int) -> VerifiedPortion:
        with self._open(context) as (source, indexes):
            return compare(
                source,
                indexes,
                filled.portion,
                lambda: context.get_state(self.consumer_offset) or 0,
            )

    def _switch(
        self, context: Context, created: Created, compared: Iterator[VerifiedPortion]
    ) -> Switched:
        """Once: readers who went back since then are left where they are."""
        with self._open(context) as (source, indexes):
            index = indexes.qualified(created.index)
            if not context.get_state(self.switch_done):
                self._wait_and_switch(context, index, source, indexes)
                crash_point("cutover.switch.after_commit")
        rows = sum(it.rows for it in compared)
        made = _task(context).database.transact(lambda c: switch_of(c, context.run))
        if made is None:  # somebody had switched by hand
            return Switched(index, None, rows, 0, 0.0)
        return Switched(index, made.previous, rows, made.pending or 0, made.staleness or 0.0)

    def _wait_and_switch(
        self, context: Context, index: str, source: Source, indexes: Indexes
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
        def proven(connection: Connection) -> None:
            self._prove(connection, context.run, index)
            self._check_latest(connection, context.run, index, alias)
            work(connection)
            crash_point("cutover.switch.before_commit")

        context.with_state({self.switch_done: True}, proven)

    def _check_latest(self, connection: Connection, run: int, index: str, alias: str) -> None:
        """One that failed and is tried again does not take readers back to an older index."""
        later = [
            it.run for it in switches(connection, alias) if it.run is not None and it.run > run
        ]
        if later:
            raise CutoverRefused(index, f"run {max(later)} has switched {alias} since")

    def _prove(self, connection: Connection, run: int, index: str) -> None:
        """The gate holds in the transaction that switches, whatever was seen before it."""
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
        feeding = FeedRequest(switched.index, followed.offset)
        feed = start_flow(_task(context).database, self.feed, feeding, key=context.identity)
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

    def _keep_fresh(self, context: Context, feeding: FeedRequest) -> None:
        with self._open(context) as (source, indexes):
            offset = context.set_state_once(self.feed_offset, feeding.offset)
            follower = ConsumerLoop(source, indexes, feeding.index, offset)
            self._until(context, follower, source, lambda: False)

    # ── how ──

    def _until(
        self,
        context: Context,
        follower: ConsumerLoop,
        source: Source,
        is_over: Callable[[], bool],
    ) -> None:
        following = ChangeConsumer(
            follower,
            source,
            tell=lambda offset: context.set_state("consumer_offset", offset),
            complain=lambda text: context.set_state("held_up_by", text),
            patience=self._limits.patience,
            check=context.check,
        )
        is_gated = context.step == "follow"
        while True:
            context.check()
            watermark = context.get_state(self.target_watermark) if is_gated else None
            pause = following.round(watermark)
            if is_over():
                return
            _task(context).wait_cancelled(pause)

    @contextmanager
    def _open(self, context: Context) -> Iterator[tuple[Source, Indexes]]:
        with self.opened(_task(context).database) as both:
            yield both

    @contextmanager
    def opened(self, own: Database) -> Iterator[tuple[Source, Indexes]]:
        """The source and the target, on the database of the flow."""
        with self.source.open(own) as source, self.target.open(own) as indexes:
            yield source, indexes


def _task(context: Context) -> TaskContext:
    """In a worker a context is always this; the protocol keeps databases from users' functions."""
    return cast("TaskContext", context)
