"""Fetch: the channels of a task in PostgreSQL, and which of their messages make the next step.

A step takes messages of one edge, of every run that has some: of each up to a barrier and up to an
equal share of the bytes, so that a large run does not delay a small one. A step costs about the
same whether it takes much or little. So for a processor that prefers large steps, data is left to
gather while it keeps coming, unless a signal such as END waits behind it.

Where the monitor releases, the last END of a run stays on its channel until the run is released.
Runs that were closed are forgotten: their messages are not read any more.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic

from tidegate.dataflow import Barrier, Batch, Edge, Event, StreamMessage
from tidegate.errors import ChannelConflict, CountMismatch
from tidegate.runtime.task.batch_sizing import ready_at
from tidegate.runtime.task.processor import Processor, StepInput
from tidegate.runtime.task_graph import HEAD, TaskEdge, edges_into, shards_by_channel
from tidegate.store import (
    FETCH,
    ChannelName,
    ChannelState,
    Connection,
    Database,
    RestoredEntry,
    RunInfo,
    UnreadMessage,
    WithdrawnCheckpoints,
    channels_of,
    closed_among,
    last_watermarks,
    released,
    state_of,
    unread,
    withdrawn_checkpoints,
)

END_OF_CHANNEL = sys.maxsize
"""A position behind all messages of a channel."""


@dataclass(slots=True)
class InputChannel:
    """A channel into the task, of one run."""

    id: int
    edge: Edge
    run: RunInfo
    cursor: int
    """The position that is committed."""
    handled: int
    """The last message that a step took."""
    fetched: int
    """The last message that was fetched."""
    waiting: deque[UnreadMessage] = field(default_factory=deque)
    """Fetched messages that no step has taken; `bytes` and `signals` are among them."""
    bytes: int = 0
    signals: int = 0
    first_at: float = 0.0
    last_at: float = 0.0
    """When the first and the last waiting message was fetched."""
    is_ended: bool = False
    """Whether END was taken; nothing follows it."""

    def add(self, message: UnreadMessage) -> None:
        """Add a fetched message; raises `ChannelConflict` when one before it is missing."""
        if message.seq != self.fetched + 1:
            reason = f"message {self.fetched + 1} of {self.run.key} is gone"
            raise ChannelConflict(task=str(self.edge), reason=reason, run=self.run.key)
        self.fetched = message.seq
        self.last_at = monotonic()
        self.first_at = self.first_at if self.waiting else self.last_at
        self.waiting.append(message)
        self._count(message, 1)

    def ready_at(self, step_bytes: int) -> float:
        """When the waiting messages are worth a step of this size."""
        is_enough = bool(self.signals) or self.bytes >= step_bytes or len(self.waiting) >= FETCH
        return 0.0 if is_enough else ready_at(self.first_at, self.last_at)

    @property
    def is_at_end(self) -> bool:
        """Whether END is the next message."""
        return bool(self.waiting) and _is_end(self.waiting[0].message)

    def take(self, messages: int, size: int, *, released: bool) -> Iterator[StreamMessage]:
        """Messages in order, up to a signal, up to `size` bytes, and END only if released.

        The first message is taken whatever its size.
        """
        while messages > 0 and size > 0 and self.waiting:
            if not released and self.is_at_end:
                return
            unread = self.waiting.popleft()
            self._count(unread, -1)
            self._check_count(unread)
            self.handled = unread.seq
            self.is_ended = _is_end(unread.message)
            yield unread.message
            size -= _bytes(unread.message)
            messages = 0 if unread.message.is_signal else messages - 1

    def _count(self, unread: UnreadMessage, sign: int) -> None:
        self.bytes += sign * _bytes(unread.message)
        self.signals += sign * unread.message.is_signal

    def _check_count(self, unread: UnreadMessage) -> None:
        end = unread.message
        if isinstance(end, Barrier) and end.is_end and end.count != unread.seq - 1:
            raise CountMismatch(str(self.edge), self.run.key, end.count or 0, unread.seq - 1)


@dataclass(frozen=True, slots=True)
class OutputChannel:
    """A channel out of the task, of one run."""

    id: int
    name: ChannelName
    shard: int | None

    def carries(self, message: StreamMessage) -> bool:
        """Whether a message goes to this channel."""
        return not isinstance(message, Event) or message.goes_to(self.shard)


@dataclass(slots=True)
class OpenRun:
    """The channels of one run at this task."""

    run: RunInfo
    inputs: tuple[InputChannel, ...]
    outputs: tuple[OutputChannel, ...]
    is_deferred: bool = False
    """Whether a part of an earlier step waits for its job."""

    @property
    def position(self) -> str:
        """How far each channel was handled; message ids are derived from it."""
        return " ".join(f"{channel.edge} {channel.handled}" for channel in self.inputs)


@dataclass(frozen=True, slots=True)
class _Fetched:
    """What one transaction read."""

    messages: list[UnreadMessage]
    closed: set[int]
    released: set[int]
    withdrawn: Mapping[int, WithdrawnCheckpoints]


class TaskChannels:
    """The channels of one task, over all open runs."""

    def __init__(
        self,
        database: Database,
        pipeline: str,
        processor: Processor,
        edges: Sequence[TaskEdge],
        *,
        is_monitored: bool,
    ) -> None:
        self._database = database
        self._pipeline = pipeline
        self._task = processor.name
        self._processor = processor
        self._edges = edges_into(edges, self._task) or (Edge(0, HEAD),)
        self._shards = shards_by_channel(edges, self._task)
        self._is_monitored = is_monitored
        self._released: set[int] = set()
        self._next_edge = 0
        self._next_run = 0
        self.runs: dict[str, OpenRun] = {}

    # ── which messages make the next step ──

    def next_step(self, limit: int) -> StepInput | None:
        """At most `limit` fetched messages of the next edge in turn that has some ready."""
        readable = self._readable()
        for offset in range(len(self._edges)):
            edge = self._edges[(self._next_edge + offset) % len(self._edges)]
            channels = readable.get(edge, [])
            if self._ready_at(channels) > monotonic():
                continue
            messages = tuple(self._take(channels, limit))
            if messages:
                self._next_edge = (self._next_edge + offset + 1) % len(self._edges)
                return StepInput(edge, messages)
        return None

    def ready_at(self) -> float:
        """When the first waiting messages are worth a step."""
        return min(map(self._ready_at, self._readable().values()), default=math.inf)

    def _readable(self) -> dict[Edge, list[InputChannel]]:
        """By edge, the channels with messages that the processor can take."""
        readable: dict[Edge, list[InputChannel]] = defaultdict(list)
        for key, state in self.runs.items():
            for channel in state.inputs:
                if channel.waiting and not self._processor.is_blocked(channel.edge, key):
                    readable[channel.edge].append(channel)
        return readable

    def _ready_at(self, channels: Sequence[InputChannel]) -> float:
        if not self._processor.prefers_large_steps:
            return 0.0 if channels else math.inf
        size = self._processor.step_bytes
        return min((channel.ready_at(size) for channel in channels), default=math.inf)

    def _take(self, channels: Sequence[InputChannel], limit: int) -> Iterator[StreamMessage]:
        """From all runs, beginning with another one each time."""
        self._next_run += 1
        size = self._processor.step_bytes // max(1, len(channels))
        for offset in range(len(channels)):
            channel = channels[(self._next_run + offset) % len(channels)]
            for message in channel.take(limit, max(1, size), released=self._may_end(channel)):
                limit -= 1
                yield message

    def _may_end(self, channel: InputChannel) -> bool:
        """Whether END may be taken: the last one of a monitored run waits for the release.

        The others do not wait: a checkpoint is aligned over the channels that have not ended.
        """
        if not self._is_monitored or channel.run.id in self._released:
            return True
        return sum(not each.is_ended for each in self.runs[channel.run.key].inputs) > 1

    # ── reading from PostgreSQL ──

    def fetch(self) -> bool:
        """Read what is new of all runs; whether there were messages, so that there may be more."""
        fetched = self._database.transact(self._fetch)
        self.forget(fetched.closed)
        self._withdraw(fetched.withdrawn)
        self._released |= fetched.released
        for message in fetched.messages:
            self._channel(message).add(message)
        return bool(fetched.messages)

    def _fetch(self, connection: Connection) -> _Fetched:
        """Channels with many waiting messages are left alone."""
        positions = {
            channel.id: END_OF_CHANNEL if len(channel.waiting) >= FETCH else channel.fetched
            for state in self.runs.values()
            for channel in state.inputs
        }
        known = [state.run.id for state in self.runs.values()]
        messages = unread(connection, self._pipeline, self._task, positions)
        closed = closed_among(connection, known) if known else set()
        unreleased = set(known) - self._released
        freed: set[int] = set()
        if self._is_monitored and unreleased:
            freed = released(connection, self._task, unreleased)
        # Read last: a task that has the next barrier must know whether the one before is withdrawn.
        withdrawn = (
            withdrawn_checkpoints(connection, known) if self._may_be_withdrawn(messages) else {}
        )
        return _Fetched(messages, closed, freed, withdrawn)

    def _may_be_withdrawn(self, messages: Iterable[UnreadMessage]) -> bool:
        """Whether a barrier arrived or is pending, so that the question is worth a query."""
        if any(_is_checkpoint(each.message) for each in messages):
            return True
        return any(
            channel.signals or self._processor.is_blocked(channel.edge, key)
            for key, state in self.runs.items()
            for channel in state.inputs
        )

    def _withdraw(self, withdrawn: Mapping[int, WithdrawnCheckpoints]) -> None:
        for key, state in self.runs.items():
            if state.run.id in withdrawn:
                self._processor.withdraw(key, withdrawn[state.run.id])

    # ── opening and forgetting runs ──

    def forget(self, runs: Collection[int]) -> None:
        """Drop everything of runs that were closed, or have to be read again."""
        for key in [key for key, state in self.runs.items() if state.run.id in runs]:
            del self.runs[key]
            self._processor.forget(key)
        self._released.difference_update(runs)

    def ended(self, run: str) -> None:
        """END has left the task: the processor has dropped the run itself."""
        done = self.runs.pop(run, None)
        if done is not None:
            self._released.discard(done.run.id)

    def _channel(self, message: UnreadMessage) -> InputChannel:
        key = message.run.key
        if key not in self.runs:
            self.runs[key] = self._open(message.run)
        return next(each for each in self.runs[key].inputs if each.id == message.channel)

    def _open(self, run: RunInfo) -> OpenRun:
        channels, state, withdrawn = self._database.transact(partial(self._read_run, run=run))
        opened = self._open_channels(run, channels)
        self._restore_watermarks(opened)
        if state:
            self._processor.restore_state(run.key, state)
        self._processor.withdraw(run.key, withdrawn)
        return opened

    def _read_run(
        self, connection: Connection, run: RunInfo
    ) -> tuple[list[ChannelState], list[RestoredEntry], WithdrawnCheckpoints]:
        """A run's channels, the state of this task, and the checkpoints that are withdrawn."""
        channels = channels_of(connection, run, self._task)
        withdrawn = withdrawn_checkpoints(connection, [run.id]).get(run.id, WithdrawnCheckpoints())
        return channels, state_of(connection, run, self._task), withdrawn

    def _open_channels(self, run: RunInfo, channels: Iterable[ChannelState]) -> OpenRun:
        edges = {(edge.upstream, edge.index): edge for edge in self._edges}
        inputs, outputs = [], []
        for channel in channels:
            name, at = channel.name, channel.cursor
            if name.to_task == self._task:
                edge = edges[name.from_task, name.input]
                inputs.append(InputChannel(channel.id, edge, run, at, at, at))
            else:
                shard = self._shards[name.to_task, name.input]
                outputs.append(OutputChannel(channel.id, name, shard))
        return OpenRun(run, tuple(inputs), tuple(outputs))

    def _restore_watermarks(self, opened: OpenRun) -> None:
        """A watermark has its effect when it is read; after a crash it is read from its channel."""
        if not any(channel.cursor for channel in opened.inputs):
            return
        positions = {channel.id: channel.cursor for channel in opened.inputs}
        positions |= {channel.id: END_OF_CHANNEL for channel in opened.outputs}
        found = self._database.transact(lambda connection: last_watermarks(connection, positions))
        arrived = {each.edge: found[each.id] for each in opened.inputs if each.id in found}
        left = [found[each.id] for each in opened.outputs if each.id in found]
        if arrived:
            self._processor.restore_watermarks(opened.run.key, arrived, max(left, default=None))


def _bytes(message: StreamMessage) -> int:
    """The bytes of the batch that a message carries."""
    payload = message.payload if isinstance(message, Event) else None
    return payload.bytes if isinstance(payload, Batch) else 0


def _is_end(message: StreamMessage) -> bool:
    return isinstance(message, Barrier) and message.is_end


def _is_checkpoint(message: StreamMessage) -> bool:
    return isinstance(message, Barrier) and message.is_checkpoint
