"""The step loop over lanes in memory: control first, nothing mixed, nothing lost."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Thread

import pytest

from tests.waiting import wait_until
from tidegate.dataflow import (
    Barrier,
    BarrierKind,
    Bell,
    Channel,
    ControlSignal,
    Edge,
    Event,
    InstantKind,
    StreamMessage,
)
from tidegate.errors import CountMismatch, ProcessorFailed
from tidegate.runtime import Operator, StepLoop
from tidegate.runtime.in_memory.memory import STEP_MESSAGES, Lane, MemoryLanes

QUICK = InstantKind.QUICK_END.with_id(90)
STOP = BarrierKind.GRACEFUL_END.with_id(91)
END = BarrierKind.END_OF_RUN.with_id(7, "march")


def event(payload: object, run: str = "march", shard: int | None = None) -> Event[object]:
    return Event(payload, run, shard)


class Rig:
    """One processor between channels that the test fills and reads by hand."""

    def __init__(
        self, processor: Operator, outputs: int = 1, capacity: int = 100, exchange: bool = False
    ) -> None:
        bell = Bell()
        self.source = _lane("in", capacity=1_000, bell=bell)
        self.sinks = [
            _lane(f"out{n}", capacity, bell, shard=n if exchange else None) for n in range(outputs)
        ]
        lanes = MemoryLanes([self.source], self.sinks, bell)
        self.forwarded: list[Barrier] = []
        self.loop = StepLoop(processor, lanes, lambda name, barrier: self.forwarded.append(barrier))

    def send(self, *messages: StreamMessage) -> None:
        for message in messages:
            assert self.source.offer(message)


def _lane(name: str, capacity: int, bell: Bell, shard: int | None = None) -> Lane:
    data = Channel(name, capacity, arrivals=bell, room=bell)
    control = Channel(f"{name} control", capacity, arrivals=bell, room=bell)
    return Lane(Edge(0, name), data, control, shard)


def taken(lane: Lane) -> list[StreamMessage]:
    return list(iter(lane.poll, None))


def controls(lane: Lane) -> list[StreamMessage]:
    return list(iter(lane.control.poll, None))


class Buffering(Operator):
    """Keeps everything until a barrier comes."""

    def __init__(self) -> None:
        super().__init__("buffering")
        self._kept: list[Event[object]] = []

    def on_event(self, event: Event[object]) -> Iterable[Event[object]]:
        self._kept.append(event)
        return ()

    def flush(self, barrier: Barrier) -> Iterable[Event[object]]:
        kept, self._kept = self._kept, []
        return kept


def test_data_goes_out_on_data_and_control_on_control() -> None:
    rig = Rig(Operator("op"))
    cancel = InstantKind.CANCEL.with_id(5, "april")
    rig.send(event(1), STOP)
    rig.source.control.put(cancel)
    assert rig.loop.run() == STOP
    assert taken(rig.sinks[0]) == [event(1), STOP]
    assert controls(rig.sinks[0]) == [cancel]


def test_control_is_looked_at_before_data() -> None:
    rig = Rig(Operator("op"))
    rig.send(event(1), event(2))
    rig.source.control.put(QUICK)
    assert rig.loop.run() == QUICK
    assert taken(rig.sinks[0]) == []
    assert rig.loop.discarded + rig.source.data.depth == 2


def test_a_stateful_processor_flushes_before_it_forwards_a_terminal() -> None:
    rig = Rig(Buffering())
    rig.send(event(1), event(2), STOP)
    assert rig.loop.run() == STOP
    assert taken(rig.sinks[0]) == [event(1), event(2), STOP]


def run_in_background(loop: StepLoop) -> tuple[Thread, list[ControlSignal | None]]:
    ended: list[ControlSignal | None] = []
    thread = Thread(target=lambda: ended.append(loop.run()), daemon=True)
    thread.start()
    return thread, ended


def test_a_quick_end_overtakes_a_graceful_end_that_waits_for_room() -> None:
    rig = Rig(Operator("op"), capacity=1)
    rig.send(event(1), event(2), event(3), STOP)
    thread, ended = run_in_background(rig.loop)
    wait_until(lambda: rig.sinks[0].data.depth == 1)
    rig.source.control.put(QUICK)
    thread.join(30)
    assert ended == [QUICK]
    assert rig.loop.discarded + rig.source.data.depth == 3
    assert controls(rig.sinks[0]) == [QUICK]


def test_nothing_more_is_read_while_an_outcome_waits_for_room() -> None:
    rig = Rig(Operator("op"), capacity=2)
    rig.send(*(event(number) for number in range(600)))
    thread, _ = run_in_background(rig.loop)
    wait_until(lambda: rig.sinks[0].data.depth == 2)
    assert rig.source.data.depth == 600 - STEP_MESSAGES
    rig.source.close()
    thread.join(30)
    assert not thread.is_alive()


def test_every_output_gets_signals_and_an_exchange_gives_events_to_their_shard_only() -> None:
    rig = Rig(Operator("op"), outputs=2, exchange=True)
    rig.send(event("a", shard=0), event("b", shard=1), event("all"), END, STOP)
    rig.loop.run()
    left, right = taken(rig.sinks[0]), taken(rig.sinks[1])
    assert left == [event("a", shard=0), event("all"), END.counting(2), STOP]
    assert right == [event("b", shard=1), event("all"), END.counting(2), STOP]


def test_an_end_goes_to_every_shard_also_with_zero_work() -> None:
    rig = Rig(Operator("op"), outputs=2, exchange=True)
    rig.send(event("a", shard=0), END, STOP)
    rig.loop.run()
    assert taken(rig.sinks[1]) == [END.counting(0), STOP]


def test_an_end_whose_count_is_not_what_arrived_is_an_error() -> None:
    rig = Rig(Operator("op"))
    rig.send(event(1))
    rig.source.data.put(END.counting(2))
    with pytest.raises(CountMismatch) as refused:
        rig.loop.run()
    assert (refused.value.declared, refused.value.received) == (2, 1)


def test_a_cancelled_run_is_dropped_and_its_end_still_passes() -> None:
    rig = Rig(Operator("op"))
    rig.source.control.put(InstantKind.CANCEL.with_id(1, "march"))
    rig.send(event("dropped"), event("kept", "april"), END, event("again"), STOP)
    rig.loop.run()
    assert taken(rig.sinks[0]) == [event("kept", "april"), END.counting(0), event("again"), STOP]


def test_a_failure_names_the_processor_and_the_message_and_keeps_the_cause() -> None:
    class Picky(Operator):
        def on_event(self, event: Event[object]) -> Iterable[Event[object]]:
            if event.payload == 2:
                raise ZeroDivisionError("two")
            return (event,)

    rig = Rig(Picky("picky"))
    rig.send(event(1), event(2), event(3))
    with pytest.raises(ProcessorFailed) as failed:
        rig.loop.run()
    assert failed.value.processor == "picky"
    assert failed.value.message == str(event(2))
    assert isinstance(failed.value.__cause__, ZeroDivisionError)


def test_closed_lanes_end_the_loop_without_a_terminal() -> None:
    rig = Rig(Operator("op"))
    rig.source.close()
    assert rig.loop.run() is None


def test_what_closed_lanes_leave_unsent_is_counted_as_discarded() -> None:
    rig = Rig(Operator("op"), capacity=2)
    rig.send(*(event(number) for number in range(10)))
    thread, _ = run_in_background(rig.loop)
    wait_until(lambda: rig.sinks[0].data.depth == 2)
    rig.source.close()
    thread.join(30)
    assert rig.loop.discarded == 8


def test_a_busy_upstream_does_not_starve_the_others() -> None:
    bell = Bell()
    busy, quiet, out = (_lane(name, 10_000, bell) for name in ("busy", "quiet", "out"))
    for number in range(2 * STEP_MESSAGES):
        assert busy.offer(event(number))
    assert quiet.offer(event("quiet"))
    lanes = MemoryLanes([busy, quiet], [out], bell)
    steps = [lanes.read(lambda edge: 10_000) for _ in range(3)]
    assert [step and len(step.messages) for step in steps] == [STEP_MESSAGES, 1, STEP_MESSAGES]


def test_every_forwarded_barrier_is_reported() -> None:
    rig = Rig(Operator("op"))
    sync = BarrierKind.SYNC_TEST.with_id(1, "march")
    rig.send(sync, END, STOP)
    rig.loop.run()
    assert [barrier.id for barrier in rig.forwarded] == [1, END.id, STOP.id]
