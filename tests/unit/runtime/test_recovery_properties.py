"""A fan-in that crashes at any point and reads again from its cursors loses and repeats nothing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from tidegate.dataflow import Barrier, BarrierKind, Edge, Event, StreamMessage, Watermark
from tidegate.runtime.task.input_gate import InputGate
from tidegate.runtime.task.processor import StepInput

RUN = "march#1"
EDGES = (Edge(0, "left"), Edge(1, "right"), Edge(2, "middle"))
CHECKPOINTS = (BarrierKind.CHECKPOINT.with_id(1, RUN), BarrierKind.CHECKPOINT.with_id(2, RUN))
END = BarrierKind.END_OF_RUN.with_id(3, RUN)


@st.composite
def channels(draw: st.DrawFn) -> list[list[StreamMessage]]:
    """For each edge: data, checkpoint 1, data, checkpoint 2, data, END."""
    built = []
    for edge in EDGES:
        channel: list[StreamMessage] = []
        time = 0
        for part, barrier in enumerate((*CHECKPOINTS, END)):
            for number in range(draw(st.integers(0, 3))):
                channel.append(Event(f"{edge.upstream} {part} {number}", RUN))
                if draw(st.booleans()):
                    time += draw(st.integers(1, 5))
                    channel.append(Watermark(time, RUN))
            channel.append(barrier)
        built.append(channel)
    return built


class Bench:
    """A task loop over lists; only `sent` and `cursors` survive a crash."""

    def __init__(self, channels: Sequence[Sequence[StreamMessage]]) -> None:
        self.channels = channels
        self.cursors = [0] * len(channels)
        self.sent: list[StreamMessage] = []
        self.restart()

    def restart(self) -> None:
        self.handled = list(self.cursors)
        self.processor = InputGate("meet", EDGES)
        arrived = {
            edge: message.time
            for edge in EDGES
            for message in self.channels[edge.index][: self.cursors[edge.index]]
            if isinstance(message, Watermark)
        }
        if arrived:
            left = [message.time for message in self.sent if isinstance(message, Watermark)]
            self.processor.restore_watermarks(RUN, arrived, max(left, default=None))

    def step(self, edge: Edge, limit: int) -> bool:
        if self.processor.is_blocked(edge, RUN):
            return False
        taken = self._take(edge, limit)
        if not taken:
            return False
        output = self.processor.process(StepInput(edge, taken))
        self.sent.extend(output.messages)
        self.cursors = [self.handled[e.index] - self.processor.uncommitted(e, RUN) for e in EDGES]
        return True

    def _take(self, edge: Edge, limit: int) -> tuple[StreamMessage, ...]:
        start = self.handled[edge.index]
        taken: list[StreamMessage] = []
        for message in self.channels[edge.index][start : start + limit]:
            taken.append(message)
            if message.is_signal:
                break
        self.handled[edge.index] += len(taken)
        return tuple(taken)


@given(
    channels=channels(),
    schedule=st.lists(st.tuples(st.sampled_from(EDGES), st.integers(1, 4), st.booleans())),
)
def test_a_crash_at_any_point_changes_nothing(
    channels: list[list[StreamMessage]], schedule: list[tuple[Edge, int, bool]]
) -> None:
    bench = Bench(channels)
    for edge, limit, crash in schedule:
        bench.step(edge, limit)
        if crash:
            bench.restart()
    while any(bench.step(edge, 4) for edge in EDGES):
        pass

    assert bench.cursors == [len(channel) for channel in channels]
    assert [m for m in bench.sent if isinstance(m, Barrier)] == [*CHECKPOINTS, END]
    parts = zip(*map(_parts, channels), strict=True)
    assert _parts(bench.sent) == [sorted(chain.from_iterable(part)) for part in parts]
    times = [message.time for message in bench.sent if isinstance(message, Watermark)]
    assert times == sorted(set(times))


def _parts(messages: Sequence[StreamMessage]) -> list[list[str]]:
    """The events before each barrier."""
    parts: list[list[str]] = [[]]
    for message in messages:
        if isinstance(message, Barrier):
            parts.append([])
        elif isinstance(message, Event):
            parts[-1].append(str(message.payload))
    return [sorted(part) for part in parts]
