"""Alignment: hold a barrier until every upstream has delivered it.

An aligner serves one scope (a run, or the whole pipeline) on one channel. It is told which
upstream delivered what and answers with what goes forward, in order; it never waits and does
no I/O. The promises:

- A barrier goes forward once, when the last upstream that is still open has delivered it.
- The cut is real. What an upstream sends after the barrier is held until the barrier has
  gone forward, events and watermarks alike.
- An END closes its lane and never occupies the pending place: other barriers align over the
  lanes that are still open, and END goes forward when all lanes are closed.
- A watermark is the minimum over the open upstreams and never goes back.
- What is held is bounded by those who ask `room` before they read.
- Whoever breaks the rules is named: see the `AlignmentError`s. A refused message leaves the
  aligner as it was.
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
    LaneClosed,
    NoUpstreams,
    TwoEnds,
    UnknownUpstream,
)

DEFAULT_HOLD = 1024


@final
@mypyc_attr(acyclic=True)
class Edge(Value):
    """One arriving lane of a processor, numbered from 0. A child listed twice has two edges."""

    __slots__ = ("index", "input", "upstream")
    __match_args__: ClassVar[tuple[str, ...]] = ("index", "upstream", "input")

    index: int
    upstream: str
    input: int | None
    """Which input of the plan's node the lane is part of, when that has several lanes."""

    def __init__(
        self,
        index: int,
        upstream: str,
        input: int | None = None,  # noqa: A002  it is the word of the plan
    ) -> None:
        object.__setattr__(self, "index", index)
        object.__setattr__(self, "upstream", upstream)
        object.__setattr__(self, "input", input)

    @property
    def port(self) -> int:
        """The input by which its events arrive: 0 is the left side of a join, 1 the right."""
        return self.index if self.input is None else self.input

    def _fields(self) -> tuple[object, ...]:
        return self.index, self.upstream, self.input

    def __str__(self) -> str:
        return f"{self.upstream} (input {self.index})"


@final
class Delivery(Value):
    """A message and the edge it came by."""

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
    """A barrier that waits, who has delivered it (in order of arrival) and who has not."""

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


class _Lane:
    """What the aligner knows of one upstream."""

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
        self._lanes = [_Lane(edge) for edge in edges]
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
        missing = tuple(lane.edge for lane in self._lanes if self._owes(lane))
        return Pending(barrier, tuple(self._arrived), missing)

    @property
    def is_ended(self) -> bool:
        """Whether every lane is closed and END has gone forward."""
        return self._end_forwarded

    @property
    def open_edges(self) -> tuple[Edge, ...]:
        """The upstreams whose END has not been counted."""
        return tuple(lane.edge for lane in self._lanes if not lane.closed)

    @property
    def holding(self) -> int:
        """How many messages wait behind the pending barrier."""
        return sum(len(lane.held) for lane in self._lanes)

    def room(self, edge: Edge) -> int:
        """How many more messages of this upstream can be taken, be it only to hold them."""
        return max(0, self._hold_limit - len(self._lane(edge).held))

    def awaits(self, edge: Edge) -> bool:
        """Whether this upstream has delivered a barrier, or its END, that has not gone forward."""
        lane = self._lane(edge)
        return lane.delivered or (lane.closed and not self._end_forwarded)

    def recall(self, watermarks: Mapping[Edge, int], forwarded: int | None) -> None:
        """Know again, after a crash, what earlier messages said about time."""
        for edge, time in watermarks.items():
            self._lane(edge).watermark = time
        self._watermark = forwarded

    def lets_through(self, edge: Edge) -> bool:
        """Whether an event of this upstream would go straight on: its lane is open and free."""
        lane = self._lane(edge)
        return not (lane.delivered or lane.ending)

    def accept(self, edge: Edge, message: StreamMessage) -> list[Delivery]:
        """Take one message and say what goes forward because of it."""
        lane = self._lane(edge)
        if isinstance(message, Instant):
            return [Delivery(edge, message)]
        if lane.ending and message.run == self.run:
            raise LaneClosed(upstream=str(edge), message=str(message), closed_by=str(self._end))
        if lane.delivered:
            self._hold(lane, message)
            return []
        return self._pass(lane, message)

    def abort(self, barrier_id: int) -> list[Delivery]:
        """Withdraw a barrier: what it held goes forward, its late copies count for nothing."""
        if self._last is not None and barrier_id <= self._last.id:
            return []
        self._aborted.add(barrier_id)
        if self._pending is None or self._pending.id != barrier_id:
            return []
        self._last = self._pending
        return self._clear_pending()

    def abort_up_to(self, barrier_id: int) -> list[Delivery]:
        """Withdraw all barriers up to one, as `abort` does."""
        self._void = max(self._void, barrier_id)
        if self._pending is None or self._pending.id > barrier_id:
            return []
        self._last = self._pending
        return self._clear_pending()

    def discard(self) -> list[Delivery]:
        """Forget what is held and pending because the run was cancelled; only ENDs still count."""
        if self._pending is not None:
            self._aborted.add(self._pending.id)
        for lane in self._lanes:
            lane.held = deque(message for message in lane.held if isinstance(message, Barrier))
        return self._clear_pending()

    def _lane(self, edge: Edge) -> _Lane:
        if edge.index < len(self._lanes):
            lane = self._lanes[edge.index]
            if lane.edge is edge or lane.edge == edge:
                return lane
        known = ", ".join(str(lane.edge) for lane in self._lanes)
        raise UnknownUpstream(upstream=str(edge), run=self.run, known=known)

    def _owes(self, lane: _Lane) -> bool:
        return not (lane.delivered or lane.closed)

    def _is_withdrawn(self, barrier: Barrier) -> bool:
        return barrier.id <= self._void or barrier.id in self._aborted

    def _hold(self, lane: _Lane, message: StreamMessage) -> None:
        if isinstance(message, Barrier) and message.run == self.run:
            if not message.is_end:
                return self._refuse_while_delivered(lane, message)
            self._note_end(lane, message)
        lane.held.append(message)

    def _refuse_while_delivered(self, lane: _Lane, barrier: Barrier) -> None:
        """A barrier behind the pending one, from an upstream that has delivered that one."""
        assert self._pending is not None
        if self._is_withdrawn(barrier):
            return
        if barrier.is_copy_of(self._pending):
            raise DuplicateBarrier(upstream=str(lane.edge), barrier=str(barrier))
        if barrier.id < self._pending.id:
            raise self._regressed(lane, barrier, self._pending)
        raise self._overlap(lane, barrier)

    def _pass(self, lane: _Lane, message: StreamMessage) -> list[Delivery]:
        if message.run == self.run:
            if isinstance(message, Watermark):
                return self._advance(lane, message.time)
            if isinstance(message, Barrier):
                return self._close(lane, message) if message.is_end else self._arrive(lane, message)
        return [Delivery(lane.edge, message)]

    def _arrive(self, lane: _Lane, barrier: Barrier) -> list[Delivery]:
        if self._is_withdrawn(barrier):
            return []
        self._check_order(lane, barrier)
        self._pending = barrier
        self._arrived.append(lane.edge)
        lane.delivered = True
        lane.last = barrier
        return self._complete_if_aligned()

    def _check_order(self, lane: _Lane, barrier: Barrier) -> None:
        if lane.last is not None and barrier.id == lane.last.id:
            raise DuplicateBarrier(upstream=str(lane.edge), barrier=str(barrier))
        if self._last is not None and barrier.id <= self._last.id:
            raise self._regressed(lane, barrier, self._last)
        if self._pending is not None and not barrier.is_copy_of(self._pending):
            raise self._overlap(lane, barrier)

    def _complete_if_aligned(self) -> list[Delivery]:
        if self._pending is None or any(self._owes(lane) for lane in self._lanes):
            return []
        completed = Delivery(self._arrived[-1], self._pending)
        self._last = self._pending
        # A lane that delivered this barrier, or is closed, cannot bring an earlier one any more.
        self._aborted = {aborted for aborted in self._aborted if aborted > self._last.id}
        return [completed, *self._clear_pending()]

    def _clear_pending(self) -> list[Delivery]:
        """Free the pending place and let go what was held behind it."""
        self._pending = None
        self._arrived.clear()
        drained: list[Delivery] = []
        for lane in self._lanes:
            lane.delivered = False
        for lane in self._lanes:
            held, lane.held = lane.held, deque()
            for message in held:
                drained.extend(self._pass(lane, message))
        return drained

    def _close(self, lane: _Lane, end: Barrier) -> list[Delivery]:
        self._note_end(lane, end)
        lane.closed = True
        out = self._raise_watermark(lane.edge)
        out.extend(self._complete_if_aligned())
        if not self._end_forwarded and not self.open_edges:
            self._end_forwarded = True
            out.append(Delivery(lane.edge, end))
        return out

    def _note_end(self, lane: _Lane, end: Barrier) -> None:
        """The first END that arrives is the run's, also while it is held."""
        if self._end is not None and self._end.id != end.id:
            raise TwoEnds(upstream=str(lane.edge), end=str(end), first=str(self._end))
        self._end = end
        lane.ending = True

    def _advance(self, lane: _Lane, time: int) -> list[Delivery]:
        if lane.watermark is None or time > lane.watermark:
            lane.watermark = time
        return self._raise_watermark(lane.edge)

    def _raise_watermark(self, edge: Edge) -> list[Delivery]:
        low: int | None = None
        for lane in self._lanes:
            if lane.closed:
                continue
            if lane.watermark is None:
                return []
            low = lane.watermark if low is None else min(low, lane.watermark)
        if low is None or (self._watermark is not None and low <= self._watermark):
            return []
        self._watermark = low
        return [Delivery(edge, Watermark(low, self.run))]

    def _overlap(self, lane: _Lane, barrier: Barrier) -> BarrierOverlap:
        waiting = ", ".join(str(owing.edge) for owing in self._lanes if self._owes(owing))
        return BarrierOverlap(
            upstream=str(lane.edge),
            barrier=str(barrier),
            pending=str(self._pending),
            missing=waiting,
        )

    def _regressed(self, lane: _Lane, barrier: Barrier, last: Barrier) -> BarrierRegressed:
        return BarrierRegressed(upstream=str(lane.edge), barrier=str(barrier), last=str(last))
