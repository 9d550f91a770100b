"""Alignment: hold a barrier until every upstream has delivered it.

An aligner serves one scope (a run, or the whole pipeline) on one channel. It takes the messages of
each upstream and returns what to forward, in order; it never waits and does no I/O.

- A barrier is forwarded once, when the last upstream that is still open has delivered it.
- Events and watermarks that an upstream sends after the barrier are held until the barrier is
  forwarded.
- An END closes its channel and is never the pending barrier: other barriers align over the
  channels that are still open, and END is forwarded when all channels are closed.
- A watermark is the minimum over the open upstreams and never decreases.
- Held messages are bounded by callers that check `space` before they read.
- An `AlignmentError` names the upstream that breaks a rule. A refused message leaves the aligner
  unchanged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import ClassVar, final

from mypy_extensions import mypyc_attr

from tidegate.dataflow.control import Barrier, Instant
from tidegate.dataflow.messages import StreamMessage, Watermark
from tidegate.dataflow.value import Value
from tidegate.errors import (
    BarrierOverlap,
    BarrierRegressed,
    DuplicateBarrier,
    InputClosed,
    NoUpstreams,
    TwoEnds,
    UnknownUpstream,
)

DEFAULT_HOLD = 1024


@final
@mypyc_attr(acyclic=True)
class Edge(Value):
    """One arriving channel of a processor, numbered from 0. A child listed twice has two edges."""

    __slots__ = ("index", "input", "upstream")
    __match_args__: ClassVar[tuple[str, ...]] = ("index", "upstream", "input")

    index: int
    upstream: str
    input: int | None
    """The input of the plan's node that the channel is part of, when that has several channels."""

    def __init__(
        self,
        index: int,
        upstream: str,
        input: int | None = None,  # noqa: A002  the plan's word
    ) -> None:
        object.__setattr__(self, "index", index)
        object.__setattr__(self, "upstream", upstream)
        object.__setattr__(self, "input", input)

    @property
    def port(self) -> int:
        """The input that its events arrive by: 0 is the left side of a join, 1 the right."""
        return self.index if self.input is None else self.input

    def _fields(self) -> tuple[object, ...]:
        return self.index, self.upstream, self.input

    def __str__(self) -> str:
        return f"{self.upstream} (input {self.index})"


@final
class Arrival(Value):
    """A message and the edge that it arrived by."""

    __slots__ = ("edge", "message")
    __match_args__: ClassVar[tuple[str, ...]] = ("edge", "message")

    edge: Edge
    message: StreamMessage

    def __init__(self, edge: Edge, message: StreamMessage) -> None:
        object.__setattr__(self, "edge", edge)
        object.__setattr__(self, "message", message)

    def _fields(self) -> tuple[object, ...]:
        return self.edge, self.message


@final
@mypyc_attr(acyclic=True)
class Pending(Value):
    """A barrier that waits, the edges that have delivered it (in order) and those that have not."""

    __slots__ = ("arrived", "barrier", "missing")
    __match_args__: ClassVar[tuple[str, ...]] = ("barrier", "arrived", "missing")

    barrier: Barrier
    arrived: tuple[Edge, ...]
    missing: tuple[Edge, ...]

    def __init__(
        self, barrier: Barrier, arrived: tuple[Edge, ...], missing: tuple[Edge, ...]
    ) -> None:
        object.__setattr__(self, "barrier", barrier)
        object.__setattr__(self, "arrived", arrived)
        object.__setattr__(self, "missing", missing)

    def _fields(self) -> tuple[object, ...]:
        return self.barrier, self.arrived, self.missing


class _Channel:
    """The state of one upstream."""

    __slots__ = ("closed", "delivered", "edge", "ending", "held", "last", "watermark")

    def __init__(self, edge: Edge) -> None:
        self.edge = edge
        self.delivered = False  # has delivered the pending barrier
        self.ending = False  # has sent END, which may still be held
        self.closed = False  # its END has been counted
        self.last: Barrier | None = None
        self.watermark: int | None = None
        self.held: deque[StreamMessage] = deque()


class Aligner:
    """Aligns the barriers of one scope over a fixed set of upstreams."""

    def __init__(self, edges: Sequence[Edge], run: str, hold: int = DEFAULT_HOLD) -> None:
        if not edges:
            raise NoUpstreams(run=run)
        self.run = run
        self._hold_limit = hold
        self._channels = [_Channel(edge) for edge in edges]
        self._pending: Barrier | None = None
        self._arrived: list[Edge] = []
        self._last: Barrier | None = None
        self._end: Barrier | None = None
        self._end_forwarded = False
        self._aborted: set[int] = set()
        self._void = 0  # all barriers up to this one are withdrawn
        self._watermark: int | None = None

    @property
    def pending(self) -> Pending | None:
        """The barrier that waits here, if any."""
        barrier = self._pending
        if barrier is None:
            return None
        missing = tuple(channel.edge for channel in self._channels if self._owes(channel))
        return Pending(barrier, tuple(self._arrived), missing)

    @property
    def is_ended(self) -> bool:
        """Whether every channel is closed and END was forwarded."""
        return self._end_forwarded

    @property
    def open_edges(self) -> tuple[Edge, ...]:
        """The upstreams whose END has not been counted."""
        return tuple(channel.edge for channel in self._channels if not channel.closed)

    @property
    def holding(self) -> int:
        """How many messages are held behind the pending barrier."""
        return sum(len(channel.held) for channel in self._channels)

    def space(self, edge: Edge) -> int:
        """How many more messages of this upstream can be accepted or held."""
        return max(0, self._hold_limit - len(self._channel(edge).held))

    def awaits(self, edge: Edge) -> bool:
        """Whether this upstream has delivered a barrier, or END, that was not forwarded yet."""
        channel = self._channel(edge)
        return channel.delivered or (channel.closed and not self._end_forwarded)

    def recall(self, watermarks: Mapping[Edge, int], forwarded: int | None) -> None:
        """Restore the watermarks of earlier messages after a crash."""
        for edge, time in watermarks.items():
            self._channel(edge).watermark = time
        self._watermark = forwarded

    def accept(self, edge: Edge, message: StreamMessage) -> list[Arrival]:
        """Accept one message; what is forwarded because of it."""
        channel = self._channel(edge)
        if isinstance(message, Instant):
            return [Arrival(edge, message)]
        if channel.ending and message.run == self.run:
            raise InputClosed(upstream=str(edge), element=str(message), closed_by=str(self._end))
        if channel.delivered:
            self._hold(channel, message)
            return []
        return self._pass(channel, message)

    def abort(self, barrier_id: int) -> list[Arrival]:
        """Withdraw a barrier: held messages are forwarded, late copies are ignored."""
        if self._last is not None and barrier_id <= self._last.id:
            return []
        self._aborted.add(barrier_id)
        if self._pending is None or self._pending.id != barrier_id:
            return []
        self._last = self._pending
        return self._clear_pending()

    def abort_up_to(self, barrier_id: int) -> list[Arrival]:
        """Withdraw all barriers up to one, as `abort` does."""
        self._void = max(self._void, barrier_id)
        if self._pending is None or self._pending.id > barrier_id:
            return []
        self._last = self._pending
        return self._clear_pending()

    def discard(self) -> list[Arrival]:
        """Drop held messages and the pending barrier of a cancelled run; only ENDs still count."""
        if self._pending is not None:
            self._aborted.add(self._pending.id)
        for channel in self._channels:
            channel.held = deque(
                message for message in channel.held if isinstance(message, Barrier)
            )
        return self._clear_pending()

    def _channel(self, edge: Edge) -> _Channel:
        if edge.index < len(self._channels):
            channel = self._channels[edge.index]
            if channel.edge is edge or channel.edge == edge:
                return channel
        known = ", ".join(str(channel.edge) for channel in self._channels)
        raise UnknownUpstream(upstream=str(edge), run=self.run, known=known)

    def _owes(self, channel: _Channel) -> bool:
        return not (channel.delivered or channel.closed)

    def _is_withdrawn(self, barrier: Barrier) -> bool:
        return barrier.id <= self._void or barrier.id in self._aborted

    def _hold(self, channel: _Channel, message: StreamMessage) -> None:
        if isinstance(message, Barrier) and message.run == self.run:
            if not message.is_end:
                return self._refuse_while_delivered(channel, message)
            self._note_end(channel, message)
        channel.held.append(message)

    def _refuse_while_delivered(self, channel: _Channel, barrier: Barrier) -> None:
        """Refuse a barrier behind the pending one, from an upstream that has delivered that one."""
        assert self._pending is not None
        if self._is_withdrawn(barrier):
            return
        if barrier.is_copy_of(self._pending):
            raise DuplicateBarrier(upstream=str(channel.edge), barrier=str(barrier))
        if barrier.id < self._pending.id:
            raise self._regressed(channel, barrier, self._pending)
        raise self._overlap(channel, barrier)

    def _pass(self, channel: _Channel, message: StreamMessage) -> list[Arrival]:
        if message.run == self.run:
            if isinstance(message, Watermark):
                return self._advance(channel, message.time)
            if isinstance(message, Barrier):
                return (
                    self._close(channel, message)
                    if message.is_end
                    else self._arrive(channel, message)
                )
        return [Arrival(channel.edge, message)]

    def _arrive(self, channel: _Channel, barrier: Barrier) -> list[Arrival]:
        if self._is_withdrawn(barrier):
            return []
        self._check_order(channel, barrier)
        self._pending = barrier
        self._arrived.append(channel.edge)
        channel.delivered = True
        channel.last = barrier
        return self._complete_if_aligned()

    def _check_order(self, channel: _Channel, barrier: Barrier) -> None:
        if channel.last is not None and barrier.id == channel.last.id:
            raise DuplicateBarrier(upstream=str(channel.edge), barrier=str(barrier))
        if self._last is not None and barrier.id <= self._last.id:
            raise self._regressed(channel, barrier, self._last)
        if self._pending is not None and not barrier.is_copy_of(self._pending):
            raise self._overlap(channel, barrier)

    def _complete_if_aligned(self) -> list[Arrival]:
        if self._pending is None or any(self._owes(channel) for channel in self._channels):
            return []
        completed = Arrival(self._arrived[-1], self._pending)
        self._last = self._pending
        # A channel that delivered this barrier, or is closed, cannot deliver an earlier one.
        self._aborted = {aborted for aborted in self._aborted if aborted > self._last.id}
        return [completed, *self._clear_pending()]

    def _clear_pending(self) -> list[Arrival]:
        """Clear the pending barrier and forward what was held behind it."""
        self._pending = None
        self._arrived.clear()
        drained: list[Arrival] = []
        for channel in self._channels:
            channel.delivered = False
        for channel in self._channels:
            held, channel.held = channel.held, deque()
            for message in held:
                drained.extend(self._pass(channel, message))
        return drained

    def _close(self, channel: _Channel, end: Barrier) -> list[Arrival]:
        self._note_end(channel, end)
        channel.closed = True
        out = self._raise_watermark(channel.edge)
        out.extend(self._complete_if_aligned())
        if not self._end_forwarded and not self.open_edges:
            self._end_forwarded = True
            out.append(Arrival(channel.edge, end))
        return out

    def _note_end(self, channel: _Channel, end: Barrier) -> None:
        """The first END that arrives is the run's, even while it is held."""
        if self._end is not None and self._end.id != end.id:
            raise TwoEnds(upstream=str(channel.edge), end=str(end), first=str(self._end))
        self._end = end
        channel.ending = True

    def _advance(self, channel: _Channel, time: int) -> list[Arrival]:
        if channel.watermark is None or time > channel.watermark:
            channel.watermark = time
        return self._raise_watermark(channel.edge)

    def _raise_watermark(self, edge: Edge) -> list[Arrival]:
        low: int | None = None
        for channel in self._channels:
            if channel.closed:
                continue
            if channel.watermark is None:
                return []
            low = channel.watermark if low is None else min(low, channel.watermark)
        if low is None or (self._watermark is not None and low <= self._watermark):
            return []
        self._watermark = low
        return [Arrival(edge, Watermark(low, self.run))]

    def _overlap(self, channel: _Channel, barrier: Barrier) -> BarrierOverlap:
        waiting = ", ".join(str(owing.edge) for owing in self._channels if self._owes(owing))
        return BarrierOverlap(
            upstream=str(channel.edge),
            barrier=str(barrier),
            pending=str(self._pending),
            missing=waiting,
        )

    def _regressed(self, channel: _Channel, barrier: Barrier, last: Barrier) -> BarrierRegressed:
        return BarrierRegressed(upstream=str(channel.edge), barrier=str(barrier), last=str(last))
