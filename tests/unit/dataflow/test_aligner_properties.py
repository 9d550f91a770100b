"""Random interleavings of random upstreams: what must hold whatever the order of arrival."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.dataflow import Aligner, Barrier, BarrierKind, Edge, Event, StreamMessage, Watermark
from tidegate.errors import AlignmentError

RUN = "march"
END = BarrierKind.END_OF_RUN.with_id(1_000, RUN)


@dataclass(frozen=True)
class Payload:
    """An event that knows its upstream, its place, the barriers before it, and its time."""

    upstream: int
    position: int
    barriers_before: int
    time: int


def sync(id: int) -> Barrier:
    return BarrierKind.SYNC_TEST.with_id(id, RUN)


@st.composite
def scripts(draw: st.DrawFn) -> list[list[StreamMessage]]:
    """For each upstream what it sends: events, watermarks, the barriers in order, maybe END."""
    barriers = draw(st.integers(0, 4))
    upstreams = draw(st.integers(1, 5))
    return [draw(script(upstream, barriers)) for upstream in range(upstreams)]


@st.composite
def script(draw: st.DrawFn, upstream: int, barriers: int) -> list[StreamMessage]:
    ends = draw(st.booleans())
    last = draw(st.integers(0, barriers)) if ends else barriers
    messages: list[StreamMessage] = []
    time = 0
    for barrier in range(last + 1):
        for is_event in draw(st.lists(st.booleans(), max_size=4)):
            time += draw(st.integers(1, 3))
            if is_event:
                messages.append(Event(Payload(upstream, len(messages), barrier, time), RUN))
            else:
                messages.append(Watermark(time, RUN))
        if barrier < last:
            messages.append(sync(barrier + 1))
    return [*messages, END] if ends else messages


class Play:
    """Delivers scripts in a drawn order and keeps what went forward because of each delivery."""

    def __init__(self, script_of: list[list[StreamMessage]], data: st.DataObject) -> None:
        self.scripts = [list(messages) for messages in script_of]
        self.edges = [Edge(index, f"up{index}") for index in range(len(script_of))]
        self.aligner = Aligner(self.edges, RUN)
        self.out: list[StreamMessage] = []
        self.completed = 0
        self.withdrawn: set[int] = set()
        self.delivered: list[set[int]] = [set() for _ in script_of]
        self._data = data

    def run(self, *, may_abort: bool = False) -> None:
        while choices := [e for e in self.edges if self._may_send(e)]:
            if may_abort and self.aligner.pending and self._data.draw(st.integers(0, 3)) == 0:
                self._abort_pending()
                continue
            self._maybe_repeat_pending()
            edge = self._data.draw(st.sampled_from(choices))
            self._send(edge, self.scripts[edge.index].pop(0))

    def _may_send(self, edge: Edge) -> bool:
        """The head sends a barrier only when the one before has completed."""
        script = self.scripts[edge.index]
        if not script:
            return False
        first = script[0]
        return not isinstance(first, Barrier) or first == END or first.id <= self.completed + 1

    def _send(self, edge: Edge, message: StreamMessage) -> None:
        if isinstance(message, Barrier):
            self.delivered[edge.index].add(message.id)
        self.out.extend(delivery.message for delivery in self.aligner.accept(edge, message))
        self.completed = max([self.completed, *self.forwarded])
        if not self.withdrawn:
            assert self.forwarded == self.due

    @property
    def forwarded(self) -> set[int]:
        return {m.id for m in self.out if isinstance(m, Barrier) and m != END}

    @property
    def due(self) -> set[int]:
        """By plain counting: every upstream that is still open has delivered it."""
        known = set().union(*self.delivered) - {END.id}
        return {id for id in known if all({id, END.id} & ids for ids in self.delivered)}

    def _maybe_repeat_pending(self) -> None:
        """An upstream delivers a barrier again, which never counts for another one."""
        pending = self.aligner.pending
        if pending is not None and self._data.draw(st.integers(0, 5)) == 0:
            again = self._data.draw(st.sampled_from(pending.arrived))
            with pytest.raises(AlignmentError):
                self.aligner.accept(again, pending.barrier)

    def _abort_pending(self) -> None:
        pending = self.aligner.pending
        assert pending is not None
        self.withdrawn.add(pending.barrier.id)
        self.completed = max(self.completed, pending.barrier.id)
        self.out.extend(delivery.message for delivery in self.aligner.abort(pending.barrier.id))


def payloads(messages: list[StreamMessage]) -> list[Payload]:
    return [m.payload for m in messages if isinstance(m, Event) and isinstance(m.payload, Payload)]


def sent(script_of: list[list[StreamMessage]]) -> list[Payload]:
    return [payload for messages in script_of for payload in payloads(messages)]


@given(scripts(), st.data())
def test_a_barrier_completes_once_when_the_last_distinct_upstream_delivered(
    script_of: list[list[StreamMessage]], data: st.DataObject
) -> None:
    play = Play(script_of, data)
    play.run()  # compares with plain counting after every single delivery
    forwarded = [m.id for m in play.out if isinstance(m, Barrier) and m != END]
    assert forwarded == sorted(play.due)


@given(scripts(), st.data())
def test_no_event_crosses_a_barrier_in_either_direction(
    script_of: list[list[StreamMessage]], data: st.DataObject
) -> None:
    play = Play(script_of, data)
    play.run()
    barriers_seen = 0
    for message in play.out:
        if isinstance(message, Barrier) and message != END:
            barriers_seen = message.id
        elif isinstance(message, Event):
            assert isinstance(message.payload, Payload)
            assert message.payload.barriers_before == barriers_seen


@given(scripts(), st.data(), st.booleans())
def test_every_event_comes_out_once_in_the_order_of_its_upstream(
    script_of: list[list[StreamMessage]], data: st.DataObject, may_abort: bool
) -> None:
    play = Play(script_of, data)
    play.run(may_abort=may_abort)
    out = payloads(play.out)
    assert sorted(out, key=lambda p: (p.upstream, p.position)) == sent(script_of)
    for upstream in range(len(script_of)):
        positions = [p.position for p in out if p.upstream == upstream]
        assert positions == sorted(positions)


@given(scripts(), st.data(), st.booleans())
def test_watermarks_only_grow_and_overtake_no_event(
    script_of: list[list[StreamMessage]], data: st.DataObject, may_abort: bool
) -> None:
    play = Play(script_of, data)
    play.run(may_abort=may_abort)
    low = -1
    for message in play.out:
        if isinstance(message, Watermark):
            assert message.time > low
            low = message.time
        elif isinstance(message, Event):
            assert isinstance(message.payload, Payload)
            assert message.payload.time > low


@given(scripts(), st.data(), st.booleans())
def test_end_is_the_last_thing_forwarded_and_only_when_every_channel_is_closed(
    script_of: list[list[StreamMessage]], data: st.DataObject, may_abort: bool
) -> None:
    play = Play(script_of, data)
    play.run(may_abort=may_abort)
    all_ended = all(messages and messages[-1] == END for messages in script_of)
    assert play.out.count(END) == (1 if all_ended else 0)
    if all_ended:
        assert play.out[-1] == END


@given(scripts(), st.data())
def test_an_aborted_barrier_never_goes_forward_and_holds_nothing(
    script_of: list[list[StreamMessage]], data: st.DataObject
) -> None:
    play = Play(script_of, data)
    play.run(may_abort=True)
    forwarded = {m.id for m in play.out if isinstance(m, Barrier)}
    assert forwarded.isdisjoint(play.withdrawn)
    assert len(payloads(play.out)) == len(sent(script_of))
