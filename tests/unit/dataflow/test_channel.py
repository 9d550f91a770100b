"""The bounded channel: space, order, slots for signals, closing without loss."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Thread
from time import monotonic

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.dataflow import BarrierKind, Channel, Event, StreamMessage
from tidegate.errors import ChannelClosed, ChannelTimeout

BARRIER = BarrierKind.SYNC_TEST.with_id(1)


def event(payload: object) -> Event[object]:
    return Event(payload, "march")


def drain(channel: Channel) -> list[StreamMessage]:
    taken = []
    while (message := channel.poll()) is not None:
        taken.append(message)
    return taken


def in_background(call: Callable[[], None]) -> Thread:
    thread = Thread(target=call, daemon=True)
    thread.start()
    return thread


def test_messages_come_out_in_the_order_they_went_in() -> None:
    channel = Channel("channel", capacity=8)
    sent: list[StreamMessage] = [event(1), BARRIER, event(2)]
    for message in sent:
        channel.put(message)
    assert drain(channel) == sent


def test_an_event_waits_for_space_until_its_deadline() -> None:
    channel = Channel("channel", capacity=1)
    channel.put(event(1))
    started = monotonic()
    with pytest.raises(ChannelTimeout) as late:
        channel.put(event(2), timeout=0.05)
    assert monotonic() - started >= 0.05
    assert (late.value.channel, late.value.seconds) == ("channel", 0.05)
    assert late.value.retryable
    assert drain(channel) == [event(1)]


def test_a_waiting_event_is_accepted_as_soon_as_there_is_space() -> None:
    channel = Channel("channel", capacity=1)
    channel.put(event(1))
    putter = in_background(lambda: channel.put(event(2), timeout=30))
    assert channel.take(timeout=30) == event(1)
    assert channel.take(timeout=30) == event(2)
    putter.join(30)
    assert not putter.is_alive()


def test_a_barrier_is_accepted_while_events_wait_and_keeps_its_position() -> None:
    channel = Channel("channel", capacity=2)
    channel.put(event(1))
    channel.put(event(2))
    putter = in_background(lambda: channel.put(event(3), timeout=30))
    assert channel.offer(BARRIER)
    taken = [channel.take(timeout=30) for _ in range(4)]
    putter.join(30)
    assert taken == [event(1), event(2), BARRIER, event(3)]


def test_the_places_for_signals_are_bounded_too() -> None:
    channel = Channel("channel", capacity=1, reserve=2)
    channel.put(event(1))
    assert [channel.offer(BARRIER) for _ in range(3)] == [True, True, False]


def test_taking_from_an_empty_channel_gives_up_at_its_deadline() -> None:
    with pytest.raises(ChannelTimeout):
        Channel("channel").take(timeout=0.02)


def test_accepted_messages_can_be_taken_after_closing_and_then_the_channel_is_drained() -> None:
    channel = Channel("channel")
    channel.put(event(1))
    channel.close()
    assert channel.take() == event(1)
    with pytest.raises(ChannelClosed):
        channel.take()


def test_a_put_after_closing_is_refused_and_names_the_message() -> None:
    channel = Channel("channel")
    channel.close()
    with pytest.raises(ChannelClosed) as refused:
        channel.put(event("apples"))
    assert refused.value.channel == "channel"
    assert "apples" in refused.value.element


def test_closing_wakes_a_taker_that_waits() -> None:
    channel = Channel("channel")
    ended: list[str] = []

    def take() -> None:
        with pytest.raises(ChannelClosed):
            channel.take(timeout=30)
        ended.append("taker")

    taker = in_background(take)
    channel.close()
    taker.join(10)
    assert ended == ["taker"]


def test_closing_wakes_a_putter_that_waits() -> None:
    channel = Channel("channel", capacity=1)
    channel.put(event(1))
    ended: list[str] = []

    def put() -> None:
        with pytest.raises(ChannelClosed):
            channel.put(event(2), timeout=30)
        ended.append("putter")

    putter = in_background(put)
    channel.close()
    putter.join(10)
    assert ended == ["putter"]


def test_the_peak_depth_stays_visible() -> None:
    channel = Channel("channel")
    for number in range(5):
        channel.put(event(number))
    drain(channel)
    channel.put(event(5))
    assert (channel.depth, channel.peak_depth) == (1, 5)


def put_until_closed(channel: Channel, accepted: list[object]) -> None:
    with suppress(ChannelClosed):
        for number in range(1_000):
            channel.put(event(number), timeout=10)
            accepted.append(number)


def take_until_closed(channel: Channel, taken: list[object]) -> None:
    with suppress(ChannelClosed):
        while isinstance(message := channel.take(timeout=10), Event):
            taken.append(message.payload)


def test_an_accepted_message_is_delivered_even_when_closing_races_with_putting() -> None:
    """Each message is either taken or refused, whichever thread wins."""
    for _ in range(100):
        channel = Channel("channel", capacity=64)
        accepted: list[object] = []
        taken: list[object] = []
        threads = [
            in_background(partial(put_until_closed, channel, accepted)),
            in_background(partial(take_until_closed, channel, taken)),
            in_background(channel.close),
        ]
        for thread in threads:
            thread.join(30)
        assert taken == accepted


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 5), st.integers(1, 3))
def test_depth_never_exceeds_capacity_by_events_nor_the_reserve_by_signals(
    puts: list[bool], capacity: int, reserve: int
) -> None:
    channel = Channel("channel", capacity, reserve)
    accepted = []
    for number, is_signal in enumerate(puts):
        before = channel.depth
        message = BARRIER if is_signal else event(number)
        if channel.offer(message):
            accepted.append(message)
        limit = capacity + reserve if is_signal else capacity
        assert (channel.depth > before) == (before < limit)
    assert drain(channel) == accepted
