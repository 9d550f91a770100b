"""The emitter: barriers between batches, ahead of waiting events, and reported failures."""

from __future__ import annotations

from threading import Thread

import pytest

from tests.waiting import wait_until
from tidegate.dataflow import (
    Barrier,
    BarrierEmitter,
    BarrierInjector,
    Bell,
    Channel,
    CheckpointBarrier,
    Event,
    StreamMessage,
)
from tidegate.errors import BarrierInjectionFailed, ChannelClosed, ChannelTimeout


def event(payload: object) -> Event[object]:
    return Event(payload, "march")


def barrier(id: int) -> Barrier:
    return Barrier.of_checkpoint(CheckpointBarrier(id, id), "march")


def drain(channel: Channel) -> list[StreamMessage]:
    taken = []
    while (message := channel.poll()) is not None:
        taken.append(message)
    return taken


class Source:
    """A source with its injector, its channels and what its coordinator was told."""

    def __init__(
        self, channels: int = 1, capacity: int = 8, reserve: int = 4, patience: float = 30
    ) -> None:
        bell = Bell()
        self.channels = [
            Channel(f"channel{number}", capacity, reserve, space=bell) for number in range(channels)
        ]
        self.injector = BarrierInjector("sales", bell=bell)
        self.handle = self.injector.handle()
        self.failures: list[BarrierInjectionFailed] = []
        self.emitter = BarrierEmitter(
            "march", self.channels, self.injector, self.failures.append, patience, bell
        )

    def drained(self) -> list[list[StreamMessage]]:
        return [drain(channel) for channel in self.channels]


def test_a_barrier_goes_between_the_batch_that_was_read_and_the_next() -> None:
    source = Source()
    source.emitter.send(event(1), 1)
    source.handle.inject(1, 1)
    source.emitter.send(event(2), 1)
    source.emitter.send(event(3), 1)
    assert source.drained() == [[event(1), event(2), barrier(1), event(3)]]


def test_a_barrier_goes_out_also_when_there_is_nothing_to_read() -> None:
    source = Source()
    source.handle.inject(1, 1)
    assert source.emitter.turn() == barrier(1)
    assert source.emitter.turn() is None
    assert source.drained() == [[barrier(1)]]


def test_every_channel_gets_the_barrier_at_the_same_place() -> None:
    source = Source(channels=3)
    source.emitter.send(event(1), 1)
    source.handle.inject(1, 1)
    source.emitter.turn()
    source.emitter.send(event(2), 1)
    assert source.drained() == [[event(1), barrier(1), event(2)]] * 3


def test_a_barrier_uses_a_reserved_place_when_the_channel_is_full() -> None:
    source = Source(capacity=1)
    source.emitter.send(event(1), 1)
    source.handle.inject(1, 1)
    assert source.emitter.turn() == barrier(1)
    assert source.drained() == [[event(1), barrier(1)]]


def test_a_barrier_overtakes_an_event_that_waits_for_space_on_every_channel() -> None:
    source = Source(channels=2, capacity=1)
    full, _ = source.channels
    full.put(event("in the way"))
    sender = Thread(target=lambda: source.emitter.send(event(1), 30), daemon=True)
    sender.start()
    source.handle.inject(1, 1)
    wait_until(lambda: source.injector.barriers_injected == 1 and full.depth == 2)
    assert sender.is_alive(), "the event still waits"
    wait_until(lambda: [channel.depth for channel in source.channels] == [2, 1])
    assert full.take() == event("in the way")
    assert full.take() == barrier(1)
    assert [source.channels[1].take(30), source.channels[1].take(30)] == [barrier(1), event(1)]
    assert full.take(30) == event(1)
    sender.join(30)


def test_a_barrier_waits_for_space_when_the_reserve_is_full_too() -> None:
    source = Source(capacity=1, reserve=1)
    (channel,) = source.channels
    channel.put(event(1))
    channel.put(barrier(1))
    source.handle.inject(2, 2)
    emitting = Thread(target=source.emitter.turn, daemon=True)
    emitting.start()
    assert [channel.take(30), channel.take(30), channel.take(30)] == [
        event(1),
        barrier(1),
        barrier(2),
    ]
    emitting.join(30)


def test_a_closed_channel_fails_the_source_by_name_and_notifies_the_coordinator() -> None:
    source = Source()
    source.channels[0].close()
    source.handle.inject(3, 3)
    with pytest.raises(BarrierInjectionFailed) as failed:
        source.emitter.turn()
    assert failed.value.source == "sales"
    assert "checkpoint #3" in failed.value.barrier
    assert "channel0" in failed.value.reason
    assert isinstance(failed.value.__cause__, ChannelClosed)
    assert source.failures == [failed.value]
    assert source.emitter.failed is failed.value


def test_a_barrier_that_finds_no_space_within_its_bound_fails_the_source() -> None:
    source = Source(capacity=1, reserve=1, patience=0.02)
    source.channels[0].put(event(1))
    source.channels[0].put(barrier(1))
    source.handle.inject(2, 2)
    with pytest.raises(BarrierInjectionFailed) as failed:
        source.emitter.turn()
    assert isinstance(failed.value.__cause__, ChannelTimeout)
    assert source.failures == [failed.value]


def test_a_failed_source_injects_nothing_more_and_notifies_once() -> None:
    source = Source(channels=2)
    source.channels[1].close()
    for id in (1, 2):
        source.handle.inject(id, id)
        with pytest.raises(BarrierInjectionFailed):
            source.emitter.turn()
    assert drain(source.channels[0]) == [barrier(1)]
    assert len(source.failures) == 1


def test_an_event_gives_up_at_its_deadline_and_is_on_no_channel() -> None:
    source = Source(channels=2, capacity=1)
    source.channels[1].put(event("in the way"))
    with pytest.raises(ChannelTimeout) as late:
        source.emitter.send(event(1), 0.02)
    assert "sales" in late.value.channel
    assert source.drained() == [[], [event("in the way")]]


def test_an_event_for_a_closed_channel_is_refused() -> None:
    source = Source()
    source.channels[0].close()
    with pytest.raises(ChannelClosed):
        source.emitter.send(event(1), 1)
