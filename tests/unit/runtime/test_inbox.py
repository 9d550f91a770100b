"""What a step takes of a channel: up to a barrier, up to a share, and END only when released."""

from __future__ import annotations

import pytest

from tidegate.dataflow import Barrier, BarrierKind, Edge, Event, StreamMessage
from tidegate.errors import ChannelConflict, CountMismatch
from tidegate.runtime.task.batch_sizing import PATIENCE, QUIET
from tidegate.runtime.task.input_channel import InputChannel
from tidegate.store import FETCH, Run, RunState, Unread

RUN = Run(1, "shop", "march", 1, RunState.OPEN)
MANY = 1_000


def inbox(*messages: StreamMessage) -> InputChannel:
    made = InputChannel(7, Edge(0, "s1"), RUN, 0, 0, 0)
    for seq, message in enumerate(messages, 1):
        made.keep(Unread(RUN, 7, seq, message))
    return made


def batch(size: int) -> Event[object]:
    return Event({"files": ["a"], "rows": 1, "bytes": size}, RUN.key)


def end(count: int) -> Barrier:
    return BarrierKind.END_OF_RUN.with_id(1, RUN.key).counting(count)


def taken(
    box: InputChannel, messages: int = MANY, share: int = MANY, *, released: bool = True
) -> int:
    return len(list(box.take(messages, share, released=released)))


def test_a_step_stops_behind_a_barrier() -> None:
    checkpoint = BarrierKind.CHECKPOINT.with_id(1, RUN.key)
    box = inbox(batch(1), checkpoint, batch(1))
    assert taken(box) == 2
    assert box.handled == 2
    assert taken(box) == 1


def test_a_share_of_bytes_is_exceeded_by_one_message_at_most() -> None:
    box = inbox(*(batch(10) for _ in range(10)))
    assert taken(box, share=25) == 3
    assert taken(box, share=1) == 1


def test_a_message_that_is_larger_than_the_share_is_taken_by_itself() -> None:
    assert taken(inbox(batch(99), batch(1)), share=5) == 1


def test_an_end_that_is_not_released_stays() -> None:
    box = inbox(batch(1), end(1))
    assert taken(box, released=False) == 1
    assert taken(box, released=False) == 0
    assert box.is_at_end
    assert taken(box, released=True) == 1


def test_a_gap_on_a_channel_is_an_error() -> None:
    box = inbox(batch(1))
    with pytest.raises(ChannelConflict):
        box.keep(Unread(RUN, 7, 3, batch(1)))


def test_an_end_with_another_count_than_what_came_is_an_error() -> None:
    with pytest.raises(CountMismatch):
        taken(inbox(batch(1), end(2)))


def test_data_gathers_while_it_keeps_coming_and_nobody_waits_for_it() -> None:
    box = inbox(batch(10))
    assert box.ripe_at(share=100) == pytest.approx(box.latest + QUIET)
    box.since -= PATIENCE
    assert box.ripe_at(share=100) == pytest.approx(box.latest)


def test_what_makes_a_step_worth_it_at_once() -> None:
    assert inbox(*(batch(10) for _ in range(10))).ripe_at(share=100) == 0.0
    assert inbox(*(batch(0) for _ in range(FETCH))).ripe_at(share=100) == 0.0
    ended = inbox(batch(10), end(1))
    assert ended.ripe_at(share=100) == 0.0
    assert taken(ended) == 2
    ended.keep(Unread(RUN, 7, 3, batch(10)))
    assert ended.ripe_at(share=100) > 0.0, "what was taken does not count any more"
