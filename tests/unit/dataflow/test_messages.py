"""The methods of all messages, and the promises of a value, compiled or not."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from copy import copy
from dataclasses import FrozenInstanceError

import pytest

from tidegate.dataflow import (
    Arrival,
    Barrier,
    BarrierKind,
    CheckpointBarrier,
    Edge,
    Event,
    InjectBarrier,
    Instant,
    InstantKind,
    Pending,
    StreamMessage,
    Watermark,
)
from tidegate.errors import InvalidCheckpointBarrier

CHECKPOINT = CheckpointBarrier.unaligned(7, 3)
BARRIER = Barrier.of_checkpoint(CHECKPOINT, "march")
EVENT: Event[object] = Event(5, "march", shard=2, port=1)
WATERMARK = Watermark(1_000, "march")
INSTANT = InstantKind.CANCEL.with_id(8, "march")
EDGE = Edge(0, "left")

MESSAGES: list[StreamMessage] = [EVENT, WATERMARK, BARRIER, INSTANT]
VALUES: list[object] = [
    *MESSAGES,
    CHECKPOINT,
    InjectBarrier(7, 3),
    EDGE,
    Arrival(EDGE, BARRIER),
    Pending(BARRIER, (EDGE,), ()),
]


def kinds(values: list[object]) -> list[str]:
    return [type(value).__name__ for value in values]


def test_only_barriers_are_barriers() -> None:
    assert [message.is_barrier for message in MESSAGES] == [False, False, True, False]
    assert [message.as_barrier() for message in MESSAGES] == [None, None, BARRIER, None]


def test_signals_are_barriers_and_instants() -> None:
    assert [message.is_signal for message in MESSAGES] == [False, False, True, True]


def test_map_changes_the_payload_of_an_event_and_nothing_else_of_it() -> None:
    assert EVENT.map(str) == Event("5", "march", shard=2, port=1)


def test_map_keeps_for_which_checkpoint_an_event_was_made() -> None:
    assert Event(5, "march", version=4).map(str) == Event("5", "march", version=4)


@pytest.mark.parametrize("message", [WATERMARK, BARRIER, INSTANT])
def test_map_leaves_everything_else_alone(message: Watermark | Barrier | Instant) -> None:
    def fail(payload: object) -> object:
        raise AssertionError(payload)

    assert message.map(fail) is message


def test_a_checkpoint_travels_in_a_barrier_with_its_number() -> None:
    assert (BARRIER.id, BARRIER.kind, BARRIER.run) == (7, BarrierKind.CHECKPOINT, "march")
    assert BARRIER.checkpoint is CHECKPOINT


def test_the_copy_that_a_channel_counts_carries_the_same_checkpoint() -> None:
    assert BARRIER.counting(9).checkpoint == CHECKPOINT


def test_an_aligned_and_an_unaligned_copy_are_the_same_point() -> None:
    aligned = Barrier.of_checkpoint(CheckpointBarrier.aligned(7, 3), "march")
    assert aligned != BARRIER
    assert aligned.is_copy_of(BARRIER)


@pytest.mark.parametrize(("id", "kind"), [(8, BarrierKind.CHECKPOINT), (7, BarrierKind.SYNC_TEST)])
def test_a_checkpoint_cannot_travel_in_a_barrier_of_another_number_or_kind(
    id: int, kind: BarrierKind
) -> None:
    with pytest.raises(InvalidCheckpointBarrier):
        Barrier(id, kind, "march", checkpoint=CHECKPOINT)


@pytest.mark.parametrize("value", VALUES, ids=kinds(VALUES))
def test_a_value_cannot_be_changed(value: object) -> None:
    names = type(value).__match_args__  # type: ignore[attr-defined]
    before = repr(value)
    for name in (*names, "unheard_of"):
        with pytest.raises((FrozenInstanceError, TypeError)):
            setattr(value, name, getattr(value, name, None))
        with pytest.raises((FrozenInstanceError, TypeError)):
            delattr(value, name)
    assert repr(value) == before


@pytest.mark.parametrize("value", VALUES, ids=kinds(VALUES))
@pytest.mark.parametrize("again", [copy, lambda value: pickle.loads(pickle.dumps(value))])
def test_a_copy_is_equal_and_has_the_same_hash(
    value: object, again: Callable[[object], object]
) -> None:
    assert again(value) == value
    assert hash(again(value)) == hash(value)


@pytest.mark.parametrize("value", VALUES, ids=kinds(VALUES))
def test_a_value_is_unequal_to_everything_else(value: object) -> None:
    assert [other for other in [*VALUES, 7, None] if other == value] == [value]


def test_a_value_shows_its_fields() -> None:
    assert repr(CHECKPOINT) == "CheckpointBarrier(checkpoint_id=7, epoch=3, flags=1)"
    assert repr(EDGE) == "Edge(index=0, upstream='left', input=None)"
    assert repr(BARRIER) == (
        "Barrier(id=7, kind=<BarrierKind.CHECKPOINT: 'checkpoint'>, run='march', count=None,"
        " checkpoint=CheckpointBarrier(checkpoint_id=7, epoch=3, flags=1))"
    )


def test_values_can_be_matched_by_name_and_by_place() -> None:
    match BARRIER:
        case Barrier(7, BarrierKind.CHECKPOINT, checkpoint=CheckpointBarrier(epoch=epoch)):
            assert epoch == 3
        case _:
            pytest.fail("the pattern must match")


@pytest.mark.parametrize("message", MESSAGES, ids=kinds([*MESSAGES]))
def test_a_message_with_the_checkpoint_it_carries_has_at_most_128_bytes(
    message: StreamMessage,
) -> None:
    """Payload, name of the run and kind are shared with others; numbers are not counted here."""
    carried = message.checkpoint if isinstance(message, Barrier) else None
    assert sys.getsizeof(message) + (0 if carried is None else sys.getsizeof(carried)) <= 128
