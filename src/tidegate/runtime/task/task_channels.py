"""Channels in PostgreSQL: the same step loop and processors, surviving the death of their process.

A step is committed as one transaction, under the lease of its task. What a processor keeps in
memory is no part of any snapshot. It says how many of the last messages of a channel have not had
their effect (`unsettled`), and the channel's cursor stays before them: after a crash they are read
again, and the memory comes back by itself.

A fan-in reads nothing behind a barrier that waits (`is_waiting`): what would be held in memory
stays on its channel. A checkpoint's barrier that leaves the task takes along what the task keeps
from there on, as its state; after a crash the processor gets that back and reads what came behind.
The step that completes a barrier moves the cursors of all channels over it and sends it on, in one
transaction. A watermark has its effect when it is read, while the fan-in goes on needing it; it is
looked up on its channel after a crash (`recall`).

A step takes what is there for all runs. One that is closed, because it was cancelled or failed,
is forgotten: what it has on its channels is not read any more, and a step that was at work for it
commits the shares of the others. Work for a run may go on behind its step (`later`): the run is
left alone until then, and its part of the step is committed by itself. Where the monitor releases
(`gated`), the last END stays on its channel until it has.

Channels are per run and carry data. Instants are handed to `send` by whoever runs the loop, who
hands them to every other loop as well; they are not passed on from here.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic

from tidegate.dataflow import Bell, Carrier, Channel, Edge, Instant, StreamMessage
from tidegate.errors import Overtaken
from tidegate.faults import crash_point
from tidegate.runtime.task import output
from tidegate.runtime.task.input_channel import InputChannel
from tidegate.runtime.task.output import OpenRun, OutputChannel
from tidegate.runtime.task.processor import DurableProcessor
from tidegate.runtime.task.snapshot import Checksum, acknowledged, checkpoints, files_in, settled
from tidegate.runtime.task.task_loop import Outcome, Step
from tidegate.runtime.task_graph import HEAD, TaskEdge, edges_into, shards_by_channel
from tidegate.store import (
    FETCH,
    Advance,
    ChannelState,
    Connection,
    Database,
    Lease,
    RestoredEntry,
    Run,
    StepCommit,
    Unread,
    Withdrawn,
    channels_of,
    closed_among,
    commit_step,
    last_watermarks,
    monitor_topic,
    number_of,
    refused_values,
    released,
    state_of,
    task_topic,
    unread,
    withdrawn_among,
)
from tidegate.store.runs import retention

STEP_MESSAGES = 256
"""Messages of one edge that a step takes at most."""
EVERYTHING = sys.maxsize
"""A position behind all messages of a channel."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """Under which leases a task writes: its own, and those of whoever runs it."""

    lease: Lease
    also: tuple[Lease, ...] = ()


@dataclass(frozen=True, slots=True)
class _News:
    """What one look at the database found."""

    messages: list[Unread]
    closed: set[int]
    released: set[int]
    withdrawn: Mapping[int, Withdrawn]


class TaskChannels:
    """The inputs and outputs of one task; see `tidegate.runtime.task.task_loop.Channels`.

    After any error both it and its processor are of no use: build both anew, and they go on
    where the last commit stands. `monitored` are the tasks of the graph at which the monitor
    releases END; this one may be among them.
    """

    def __init__(
        self,
        database: Database,
        pipeline: str,
        processor: DurableProcessor,
        links: Sequence[TaskEdge],
        owned: Ownership,
        monitored: Sequence[str] = (),
        checksum: Checksum = lambda _: (),
    ) -> None:
        self._database = database
        self._pipeline = pipeline
        self._task = processor.name
        self._processor = processor
        self._owned = owned
        self._checksum = checksum
        self._monitored = frozenset(monitored)
        self._edges = edges_into(links, self._task) or (Edge(0, HEAD),)
        self._shards = shards_by_channel(links, self._task)
        self._runs: dict[str, OpenRun] = {}
        self._released: set[int] = set()
        self._bell = Bell()
        self._control = Channel(f"{self._task} (control)", arrivals=self._bell)
        self._may_have_news = True
        self._is_work_done = False
        self._is_finishing = False
        self._behind: set[str] = set()
        """The runs for which work goes on behind its step."""
        processor.attend(self._work_done)
        self._edge_turn = 0
        self._run_turn = 0

    @property
    def is_settled(self) -> bool:
        """What is committed has left."""
        return True

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called, or `finish` and nothing is at work any more."""
        return self._control.is_closed or (self._is_finishing and not self._behind)

    def close(self) -> None:
        """End the loop after the step it is in; nothing is lost by it."""
        self._control.close()

    def finish(self) -> None:
        """Read no more data, and end the loop when what is at work is committed."""
        self._is_finishing = True
        self._bell.ring()

    def send(self, instant: Instant) -> None:
        """Hand an instant to this task."""
        self._control.put(instant)

    def wake(self) -> None:
        """There may be messages; safe to call from any thread."""
        self._may_have_news = True
        self._bell.ring()

    def read(self, room: Callable[[Edge], int]) -> Step | None:
        """The next step: an instant, or messages of the next edge in turn."""
        instant = self._control.poll()
        if isinstance(instant, Instant):
            return Step(Carrier.CONTROL, self._edges[0], (instant,))
        if self._is_finishing:
            return None
        step = self._next_step(room)
        if step is None and self._may_have_news:
            self._fetch()
            step = self._next_step(room)
        return step

    def commit(self, step: Step, outcome: Outcome) -> None:
        """Move cursors, append what follows and publish results, in one transaction.

        Runs whose checkpoint has not waited for this step are read anew; the others go on.
        """
        while True:
            try:
                self._commit(step, outcome)
            except Overtaken as late:
                outcome = self._drop(outcome, late.runs)
            else:
                return

    def _drop(self, outcome: Outcome, runs: Collection[int]) -> Outcome:
        """Forget what was done for these runs; nobody will ever name the files of it."""
        dropped = {key for key, state in self._runs.items() if state.run.id in runs}
        named = [(number_of(it.run), file) for it in outcome.data if it.run in dropped
                 for file in files_in(it)]  # fmt: skip
        self._database.transact(lambda connection: retention.note(connection, named))
        self._forget(runs)
        self._may_have_news = True
        return outcome.without(dropped)

    def _commit(self, step: Step, outcome: Outcome) -> None:
        touched = self._touched(step, outcome)
        advances = tuple(self._advances(touched))
        commit = StepCommit(
            lease=self._owned.lease,
            also=self._owned.also,
            advances=advances,
            settled=tuple(settled(self._runs, self._task, outcome, advances, self._checksum)),
            sent=tuple(output.sent(self._runs, outcome.data)),
            published=tuple(output.published(self._runs, outcome.results)),
            ended_runs=tuple(output.ended(self._runs, outcome.data)),
            failed=tuple(output.failed(self._runs, outcome.failed)),
            wakes=tuple(self._wakes(outcome.data)),
            acknowledged=tuple(acknowledged(self._runs, self._task, outcome, self._checksum)),
            runs=tuple(state.run.id for state in touched),
        )
        if commit.changes:
            with refused_values(self._task, self._keys_of(commit)):
                committed = self._database.transact(lambda c: commit_step(c, commit))
            crash_point("step.after_commit")
            if commit.published:
                crash_point("publish.after_commit")
            self._forget(committed.closed)
        self._note(commit, touched, outcome)

    def wait(self, room: Callable[[Edge], int], timeout: float) -> None:
        """Sleep until woken or until data is ripe; after the timeout look without having been."""
        if self._processor.is_patient:
            ripe = min(map(self._ripe_at, self._by_edge().values()), default=math.inf)
            timeout = min(timeout, max(0.0, ripe - monotonic()))
        self._bell.sleep_unless(lambda: self._is_woken, timeout)
        self._may_have_news = True
        self._is_work_done = False  # the loop asks the processor next

    def discard(self) -> int:
        """Forget what was fetched; it stays on its channels, so nothing is dropped."""
        self._runs.clear()
        self._behind.clear()
        return 0

    def _work_done(self) -> None:
        self._is_work_done = True
        self._bell.ring()

    @property
    def _is_woken(self) -> bool:
        may_read = self._may_have_news and not self._is_finishing
        is_at_hand = may_read or self._is_work_done
        return is_at_hand or self.is_closed or self._control.depth > 0

    @property
    def _is_gated(self) -> bool:
        return self._task in self._monitored

    # ── reading ──

    def _next_step(self, room: Callable[[Edge], int]) -> Step | None:
        waiting = self._by_edge()
        for offset in range(len(self._edges)):
            edge = self._edges[(self._edge_turn + offset) % len(self._edges)]
            inboxes = waiting.get(edge, [])
            if self._ripe_at(inboxes) > monotonic():
                continue
            messages = tuple(self._take(inboxes, min(room(edge), STEP_MESSAGES)))
            if messages:
                self._edge_turn = (self._edge_turn + offset + 1) % len(self._edges)
                return Step(Carrier.DATA, edge, messages)
        return None

    def _by_edge(self) -> dict[Edge, list[InputChannel]]:
        """What the processor could take now, of all runs."""
        found: dict[Edge, list[InputChannel]] = defaultdict(list)
        for key, state in self._runs.items():
            for inbox in state.inboxes:
                if inbox.waiting and not self._processor.is_waiting(inbox.edge, key):
                    found[inbox.edge].append(inbox)
        return found

    def _ripe_at(self, inboxes: Sequence[InputChannel]) -> float:
        """When a step is worth it: at once, unless the processor has patience."""
        if not self._processor.is_patient:
            return 0.0 if inboxes else math.inf
        share = self._processor.share
        return min((inbox.ripe_at(share) for inbox in inboxes), default=math.inf)

    def _take(self, inboxes: Sequence[InputChannel], limit: int) -> Iterator[StreamMessage]:
        """From all runs, beginning with another one each time."""
        self._run_turn += 1
        share = self._processor.share // max(1, len(inboxes))
        for offset in range(len(inboxes)):
            inbox = inboxes[(self._run_turn + offset) % len(inboxes)]
            for message in inbox.take(limit, max(1, share), released=self._may_end(inbox)):
                limit -= 1
                yield message

    def _may_end(self, inbox: InputChannel) -> bool:
        """Whether END may be taken: where the monitor releases, the last one waits for that.

        The others may not: a checkpoint is aligned over the channels that have not ended.
        """
        if not self._is_gated or inbox.run.id in self._released:
            return True
        return sum(not it.is_ended for it in self._runs[inbox.run.key].inboxes) > 1

    def _fetch(self) -> None:
        """See what is new; inboxes that have much are not filled up."""
        self._may_have_news = False
        news = self._database.transact(self._look)
        self._forget(news.closed)
        self._withdraw(news.withdrawn)
        self._released |= news.released
        for message in news.messages:
            self._inbox(message).keep(message)
        if news.messages:
            self._may_have_news = True  # there may be more than was fetched

    def _look(self, connection: Connection) -> _News:
        fetched = {
            inbox.id: EVERYTHING if len(inbox.waiting) >= FETCH else inbox.fetched
            for state in self._runs.values()
            for inbox in state.inboxes
        }
        known = [state.run.id for state in self._runs.values()]
        messages = unread(connection, self._pipeline, self._task, fetched)
        closed = closed_among(connection, known) if known else set()
        waiting = set(known) - self._released
        freed: set[int] = set()
        if self._is_gated and waiting:
            freed = released(connection, self._task, waiting)
        # Asked last: whoever sees the next barrier has to know what became of the one before.
        withdrawn = withdrawn_among(connection, known) if self._may_be_withdrawn(messages) else {}
        return _News(messages, closed, freed, withdrawn)

    def _may_be_withdrawn(self, messages: Iterable[Unread]) -> bool:
        """Whether a barrier is there or waits, so that it is worth asking."""
        if any(checkpoints(it.message for it in messages)):
            return True
        return any(
            inbox.signals or self._processor.is_waiting(inbox.edge, key)
            for key, state in self._runs.items()
            for inbox in state.inboxes
        )

    def _withdraw(self, withdrawn: Mapping[int, Withdrawn]) -> None:
        for key, state in self._runs.items():
            if state.run.id in withdrawn:
                self._processor.withdraw(key, withdrawn[state.run.id])

    def _forget(self, closed: Iterable[int]) -> None:
        gone = set(closed)
        for key in [key for key, state in self._runs.items() if state.run.id in gone]:
            del self._runs[key]
            self._behind.discard(key)
            self._processor.forget(key)
        self._released -= gone

    def _inbox(self, message: Unread) -> InputChannel:
        key = message.run.key
        if key not in self._runs:
            self._runs[key] = self._open(message.run)
        return next(inbox for inbox in self._runs[key].inboxes if inbox.id == message.channel)

    def _open(self, run: Run) -> OpenRun:
        channels, state, withdrawn = self._database.transact(partial(self._known_of, run=run))
        edges = {(edge.upstream, edge.index): edge for edge in self._edges}
        inboxes, outlets = [], []
        for channel in channels:
            name, at = channel.name, channel.cursor
            if name.to_task == self._task:
                edge = edges[name.from_task, name.input]
                inboxes.append(InputChannel(channel.id, edge, run, at, at, at))
            else:
                shard = self._shards[name.to_task, name.input]
                outlets.append(OutputChannel(channel.id, name, shard))
        opened = OpenRun(run, tuple(inboxes), tuple(outlets))
        self._recall(opened)
        if state:
            self._processor.restore(run.key, state)
        self._processor.withdraw(run.key, withdrawn)
        return opened

    def _known_of(
        self, connection: Connection, run: Run
    ) -> tuple[list[ChannelState], list[RestoredEntry], Withdrawn]:
        """A run's channels, what this task keeps of it, and the checkpoints that mean nothing."""
        channels = channels_of(connection, run, self._task)
        withdrawn = withdrawn_among(connection, [run.id]).get(run.id, Withdrawn())
        return channels, state_of(connection, run, self._task), withdrawn

    def _recall(self, opened: OpenRun) -> None:
        """Give the processor back what it knew of time; it does not know a run that is fresh."""
        if not any(inbox.cursor for inbox in opened.inboxes):
            return
        positions = {inbox.id: inbox.cursor for inbox in opened.inboxes}
        positions |= {outlet.id: EVERYTHING for outlet in opened.outlets}
        found = self._database.transact(lambda connection: last_watermarks(connection, positions))
        arrived = {box.edge: found[box.id] for box in opened.inboxes if box.id in found}
        left = [found[outlet.id] for outlet in opened.outlets if outlet.id in found]
        if arrived:
            self._processor.recall(opened.run.key, arrived, max(left, default=None))

    # ── committing ──

    def _keys_of(self, commit: StepCommit) -> list[str]:
        """The runs that a step stores values of."""
        touched = {*commit.runs, *(it.run for it in commit.failed)}
        return [key for key, state in self._runs.items() if state.run.id in touched]

    def _touched(self, step: Step, outcome: Outcome) -> list[OpenRun]:
        runs = {message.run for message in (*step.messages, *outcome.data)}
        runs -= outcome.failed.keys() | outcome.later
        return [state for key, state in self._runs.items() if key in runs]

    def _advances(self, touched: Iterable[OpenRun]) -> Iterator[Advance]:
        for state in touched:
            for inbox in state.inboxes:
                unsettled = self._processor.unsettled(inbox.edge, state.run.key)
                target = inbox.handled - unsettled
                if target != inbox.cursor:
                    yield Advance(inbox.id, inbox.cursor, target)

    def _wakes(self, messages: Sequence[StreamMessage]) -> Iterator[str]:
        receivers = output.receivers(self._runs, messages)
        for receiver in receivers:
            yield task_topic(self._pipeline, receiver)
        if self._is_gated or (self._monitored & receivers and any(output.ends(messages))):
            yield monitor_topic(self._pipeline)
        elif not receivers and any(checkpoints(messages)):
            yield monitor_topic(self._pipeline)  # the collecting end has it

    def _note(self, commit: StepCommit, touched: Iterable[OpenRun], outcome: Outcome) -> None:
        self._behind -= {state.run.key for state in touched} | outcome.failed.keys()
        self._behind |= outcome.later
        targets = {advance.channel: advance.target for advance in commit.advances}
        for state in touched:
            for inbox in state.inboxes:
                inbox.cursor = targets.get(inbox.id, inbox.cursor)
        for end in output.ends(outcome.data):
            done = self._runs.pop(end.run, None)
            if done is not None:
                self._released.discard(done.run.id)
        self._forget(failure.run for failure in commit.failed)
