"""What a step takes of a channel: up to a barrier, up to a size, and END only when released."""

from __future__ import annotations

import pytest

from tidegate.dataflow import Barrier, BarrierKind, Batch, Edge, Event, StreamMessage
from tidegate.errors import ChannelConflict, CountMismatch
from tidegate.runtime.task.batch_sizing import IDLE, LONGEST_WAIT
from tidegate.runtime.task.task_channels import InputChannel
from tidegate.store import FETCH, RunInfo, RunState, UnreadMessage

RUN = RunInfo(1, "shop", "march", 1, RunState.OPEN)
MANY = 1_000


def channel(*messages: StreamMessage) -> InputChannel:
    made = InputChannel(7, Edge(0, "s1"), RUN, 0, 0, 0)
    for seq, message in enumerate(messages, 1):
        made.add(UnreadMessage(RUN, 7, seq, message))
    return made


def batch(size: int) -> Event[object]:
    return Event(Batch(("a",), 1, size), RUN.key)


def end(count: int) -> Barrier:
    return BarrierKind.END_OF_RUN.with_id(1, RUN.key).counting(count)


def taken(
    read: InputChannel, messages: int = MANY, size: int = MANY, *, released: bool = True
) -> int:
    return len(list(read.take(messages, size, released=released)))


def test_a_step_stops_behind_a_barrier() -> None:
    checkpoint = BarrierKind.CHECKPOINT.with_id(1, RUN.key)
    read = channel(batch(1), checkpoint, batch(1))
    assert taken(read) == 2
    assert read.handled == 2
    assert taken(read) == 1


def test_a_share_of_bytes_is_exceeded_by_one_message_at_most() -> None:
    read = channel(*(batch(10) for _ in range(10)))
    assert taken(read, size=25) == 3
    assert taken(read, size=1) == 1


def test_a_message_that_is_larger_than_the_share_is_taken_by_itself() -> None:
    assert taken(channel(batch(99), batch(1)), size=5) == 1


def test_an_end_that_is_not_released_stays() -> None:
    read = channel(batch(1), end(1))
    assert taken(read, released=False) == 1
    assert taken(read, released=False) == 0
    assert read.is_at_end
    assert taken(read, released=True) == 1


def test_a_gap_on_a_channel_is_an_error() -> None:
    read = channel(batch(1))
    with pytest.raises(ChannelConflict):
        read.add(UnreadMessage(RUN, 7, 3, batch(1)))


def test_an_end_with_another_count_than_what_came_is_an_error() -> None:
    with pytest.raises(CountMismatch):
        taken(channel(batch(1), end(2)))


def test_data_gathers_while_it_keeps_coming_and_no_signal_follows() -> None:
    read = channel(batch(10))
    assert read.ready_at(step_bytes=100) == pytest.approx(read.last_at + IDLE)
    read.first_at -= LONGEST_WAIT
    assert read.ready_at(step_bytes=100) == pytest.approx(read.last_at)


def test_what_makes_a_step_worth_it_at_once() -> None:
    assert channel(*(batch(10) for _ in range(10))).ready_at(step_bytes=100) == 0.0
    assert channel(*(batch(0) for _ in range(FETCH))).ready_at(step_bytes=100) == 0.0
    ended = channel(batch(10), end(1))
    assert ended.ready_at(step_bytes=100) == 0.0
    assert taken(ended) == 2
    ended.add(UnreadMessage(RUN, 7, 3, batch(10)))
    assert ended.ready_at(step_bytes=100) > 0.0, "what was taken does not count any more"
