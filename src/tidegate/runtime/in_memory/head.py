"""The head of a live pipeline: where data and signals enter, and where ids are given.

Every signal gets its id from one counter and is put on every source's lane in the order of
the ids, on the one channel its sender chose. That all lanes see the barriers in one order is
what makes alignment free of deadlock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from threading import Lock, RLock
from time import monotonic

from tidegate.dataflow import (
    WHOLE_PIPELINE,
    Barrier,
    BarrierKind,
    Bell,
    Carrier,
    Event,
    Instant,
    InstantKind,
    SignalIds,
    StreamMessage,
    Watermark,
)
from tidegate.errors import (
    ChannelClosed,
    ChannelTimeout,
    RunEnded,
    RunExists,
    TooManySignals,
    UnknownRun,
    UnknownSource,
)
from tidegate.runtime.in_memory.memory import Lane
from tidegate.runtime.in_memory.receipts import Receipt


class SourceInlet:
    """The lanes out of one source: for each stage that reads it, one per shard.

    Its clients take turns; signals do not queue.
    """

    def __init__(self, name: str, readers: Sequence[Sequence[Lane]], room: Bell) -> None:
        self.name = name
        self.lanes = tuple(lane for lanes in readers for lane in lanes)
        self._readers = tuple(readers)
        self._room = room
        self._turn = Lock()
        self._next = count()

    def lanes_for(self, message: Event[object] | Watermark) -> Sequence[Lane]:
        """A watermark goes everywhere; an event to one shard of each reader.

        That is the shard it names, or the next in turn.
        """
        if isinstance(message, Watermark):
            return self.lanes
        shard = next(self._next) if message.shard is None else message.shard
        return [lanes[shard % len(lanes)] for lanes in self._readers]

    def put(
        self, message: Event[object] | Watermark, offer: Callable[[Lane], bool], timeout: float
    ) -> None:
        """Call `offer` for each lane of the message until it finds room, at most `timeout`."""
        deadline = monotonic() + timeout
        if not self._turn.acquire(timeout=timeout):
            raise self._timed_out(timeout)
        try:
            lanes = self.lanes_for(message)
            # While it is our turn nobody else sends data: a lane that has room keeps it.
            for lane in lanes:
                while not (lane.data.is_closed or lane.data.has_room_for(message)):
                    self._sleep_until_room(lane, message, deadline, timeout)
            for lane in lanes:
                while not offer(lane):
                    self._sleep_until_room(lane, message, deadline, timeout)
        finally:
            self._turn.release()

    def _sleep_until_room(
        self, lane: Lane, message: StreamMessage, deadline: float, timeout: float
    ) -> None:
        remaining = deadline - monotonic()
        if remaining <= 0:
            raise self._timed_out(timeout)
        self._room.sleep_unless(
            lambda: lane.data.is_closed or lane.data.has_room_for(message), remaining
        )

    def _timed_out(self, timeout: float) -> ChannelTimeout:
        return ChannelTimeout(channel=f"into {self.name}", doing="room", seconds=timeout)


@dataclass(slots=True)
class _OpenRun:
    """What the head remembers of a run until its END is collected."""

    end: Receipt | None = None
    closed: set[str] = field(default_factory=set)
    cancelled: bool = False
    interrupted: bool = False
    """Whether an instant was sent that may reach a processor after the run's END has left it."""

    def how_closed(self, source: str) -> str | None:
        if self.cancelled:
            return "cancelled"
        return "ended" if source in self.closed else None


class Head:
    """Numbers signals and sends data and signals into the sources."""

    def __init__(self, inlets: Iterable[SourceInlet]) -> None:
        self._inlets = {inlet.name: inlet for inlet in inlets}
        self._ids = SignalIds()
        self._order = RLock()
        self._runs: dict[str, _OpenRun] = {}
        self._terminal: Barrier | None = None

    @property
    def open_runs(self) -> tuple[str, ...]:
        """The runs that have begun and were not forgotten."""
        with self._order:
            return tuple(self._runs)

    def begin(self, run: str) -> None:
        """Open a run. A name can be used again once the run that had it is gone."""
        with self._order:
            if not run or run in self._runs:
                raise RunExists(run=run)
            self._runs[run] = _OpenRun()

    def send(self, source: str, message: Event[object] | Watermark, timeout: float) -> None:
        """Put data of a run into a source; refused once the run has ended there."""

        state = self._run(message.run)

        def offer(lane: Lane) -> bool:
            # Checked with every try: while its data waits for room the run may be ended, and
            # even be gone and its name be in use again; or the whole pipeline is.
            with self._order:
                self._check_open()
                how = state.how_closed(source)
                if how is not None:
                    raise RunEnded(run=message.run, source=source, how=how)
                return lane.offer(message)

        self._inlet(source).put(message, offer, timeout)

    def send_barrier(
        self, kind: BarrierKind, run: str, via: Carrier, announce: Callable[[Barrier], Receipt]
    ) -> Receipt:
        """Number a barrier, announce it, and put it on every lane that is still open."""
        with self._order:
            self._check_open()
            lanes = self._open_lanes(run, via)
            _check_room(lanes, via)
            barrier = kind.with_id(self._ids.take(), run)
            receipt = announce(barrier)
            _put_signal(lanes, barrier, via)
            if barrier.is_terminal:
                self._terminal = barrier
            return receipt

    def send_instant(self, kind: InstantKind, run: str = WHOLE_PIPELINE, target: int = 0) -> None:
        """Number an instant signal and put it on every control lane."""
        with self._order:
            lanes = self._all_lanes()
            _check_room(lanes, Carrier.CONTROL)
            instant = kind.with_id(self._ids.take(), run, target)
            _put_signal(lanes, instant, Carrier.CONTROL)

    def end(self, run: str, source: str | None, announce: Callable[[Barrier], Receipt]) -> Receipt:
        """Close one source of a run, or all that are open; END has one id for the whole run."""
        with self._order:
            self._check_open()
            state = self._run(run)
            if source is not None and (how := state.how_closed(self._inlet(source).name)):
                raise RunEnded(run=run, source=source, how=how)
            names = self._inlets.keys() - state.closed if source is None else {source}
            lanes = self._lanes_of(names)
            _check_room(lanes, Carrier.DATA)
            if state.end is None:
                state.end = announce(BarrierKind.END_OF_RUN.with_id(self._ids.take(), run))
            _put_signal(lanes, state.end.barrier, Carrier.DATA)
            state.closed.update(names)
            return state.end

    def cancel(self, run: str, announce: Callable[[Barrier], Receipt]) -> Receipt:
        """Drop a run: the instant goes ahead, an END sweeps up behind the data on its way."""
        with self._order:
            state = self._run(run)
            if not state.cancelled:
                self._check_open()
                _check_room(self._lanes_of(self._inlets.keys() - state.closed), Carrier.DATA)
                self.send_instant(InstantKind.CANCEL, run)
                self.end(run, None, announce)
                state.cancelled = state.interrupted = True
            assert state.end is not None
            return state.end

    def abort(self, barrier: Barrier) -> None:
        """Withdraw a barrier, wherever its copies are."""
        with self._order:
            self.send_instant(InstantKind.ABORT, barrier.run, barrier.id)
            state = self._runs.get(barrier.run)
            if state is not None:
                state.interrupted = True
            elif barrier.run != WHOLE_PIPELINE:
                self.send_instant(InstantKind.FORGET, barrier.run)

    def forget(self, run: str) -> None:
        """The run's END was collected; its name may be used for another run.

        An instant overtakes data, but it can also come to a processor that the END has left
        already, and be remembered there in vain. What is sent after FORGET finds no trace.
        """
        with self._order:
            state = self._runs.get(run)
            if state is not None and state.interrupted:
                self.send_instant(InstantKind.FORGET, run)
            self._runs.pop(run, None)

    def _run(self, run: str) -> _OpenRun:
        with self._order:
            if run not in self._runs:
                raise UnknownRun(run=run)
            return self._runs[run]

    def _inlet(self, source: str) -> SourceInlet:
        if source not in self._inlets:
            raise UnknownSource(source=source, known=", ".join(self._inlets))
        return self._inlets[source]

    def _check_open(self) -> None:
        """Nothing follows a terminal: whoever reads the lanes has stopped behind it."""
        if self._terminal is not None:
            raise ChannelClosed(channel=", ".join(self._inlets), message=f"after {self._terminal}")

    def _all_lanes(self) -> list[Lane]:
        return self._lanes_of(self._inlets)

    def _lanes_of(self, sources: Iterable[str]) -> list[Lane]:
        return [lane for source in sources for lane in self._inlets[source].lanes]

    def _open_lanes(self, run: str, via: Carrier) -> list[Lane]:
        if run == WHOLE_PIPELINE:
            return self._all_lanes()
        state = self._run(run)
        if via is Carrier.CONTROL:
            return self._all_lanes()
        still_open = self._inlets.keys() - state.closed
        if state.cancelled or not still_open:
            raise RunEnded(run=run, source="*", how="cancelled" if state.cancelled else "ended")
        return self._lanes_of(still_open)


def _check_room(lanes: Iterable[Lane], via: Carrier) -> None:
    """A signal goes on all lanes or on none."""
    for lane in lanes:
        channel = lane.channel(via)
        if not channel.has_room_for_signal:
            raise TooManySignals(channel=channel.name, waiting=channel.depth)


def _put_signal(lanes: Iterable[Lane], signal: Barrier | Instant, via: Carrier) -> None:
    for lane in lanes:
        accepted = lane.offer(signal) if via is Carrier.DATA else lane.control.offer(signal)
        assert accepted, "only the head puts signals here, and it has looked for room"
