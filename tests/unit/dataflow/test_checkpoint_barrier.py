"""Checkpoint barriers and commands: what they refuse, and that packing loses nothing."""

from __future__ import annotations

from copy import copy, deepcopy

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.dataflow import EMPTY_COMMAND, CheckpointBarrier, InjectBarrier
from tidegate.dataflow.checkpoint_barrier import UNPUBLISHED
from tidegate.errors import InvalidCheckpointBarrier, MalformedBarrier

IDS = st.integers(1, 2**64 - 1)
EPOCHS = st.integers(0, 2**48 - 1)
BARRIERS = st.builds(CheckpointBarrier, IDS, EPOCHS, st.integers(0, 1))
COMMANDS = st.builds(InjectBarrier, IDS, EPOCHS, st.booleans())

NO_ID = bytes(2) + b"\x07" + bytes(13)
REFUSED = [(0, 0), (-1, 0), (2**64, 0), (2**64 + 7, 0), (1, -1), (1, 2**48), (1, 2**64)]


def test_a_barrier_is_aligned_by_default() -> None:
    barrier = CheckpointBarrier(7, 3)
    assert barrier == CheckpointBarrier.aligned(7, 3)
    assert (barrier.is_aligned, barrier.is_unaligned, barrier.flags) == (True, False, 0)


def test_an_unaligned_barrier_has_its_flag() -> None:
    barrier = CheckpointBarrier.unaligned(7, 3)
    assert (barrier.is_aligned, barrier.is_unaligned, barrier.flags) == (False, True, 1)
    assert barrier != CheckpointBarrier.aligned(7, 3)


@given(BARRIERS)
@example(CheckpointBarrier(2**64 - 1, 2**48 - 1, 1))
@example(CheckpointBarrier(2**62, 0))
def test_a_packed_barrier_has_24_bytes_and_comes_back_as_it_was(barrier: CheckpointBarrier) -> None:
    packed = barrier.pack()
    assert len(packed) == 24
    assert CheckpointBarrier.unpack(packed) == barrier


def test_the_words_of_a_packed_barrier_are_little_endian() -> None:
    packed = CheckpointBarrier.unaligned(0x0102, 0x0304).pack()
    assert packed.hex() == "0201000000000000" + "0403000000000000" + "0100000000000000"


@given(BARRIERS)
def test_a_copied_barrier_is_the_same_value(barrier: CheckpointBarrier) -> None:
    assert copy(barrier) == deepcopy(barrier) == barrier
    assert hash(copy(barrier)) == hash(barrier)


@pytest.mark.parametrize(("checkpoint_id", "epoch"), REFUSED)
def test_numbers_that_do_not_fit_are_refused_and_never_bent(checkpoint_id: int, epoch: int) -> None:
    for make in (CheckpointBarrier.aligned, CheckpointBarrier.unaligned, InjectBarrier):
        with pytest.raises(InvalidCheckpointBarrier) as refused:
            make(checkpoint_id, epoch)
        assert (refused.value.checkpoint_id, refused.value.epoch) == (checkpoint_id, epoch)


def test_an_unpublished_barrier_is_aligned_too() -> None:
    barrier = CheckpointBarrier(7, 3, UNPUBLISHED)
    assert (barrier.is_unpublished, barrier.is_aligned) == (True, True)
    assert not CheckpointBarrier.unaligned(7, 3).is_unpublished


@pytest.mark.parametrize("flags", [4, 7, -1, 2**63, 2**64])
def test_reserved_flags_are_refused(flags: int) -> None:
    with pytest.raises(InvalidCheckpointBarrier) as refused:
        CheckpointBarrier(1, 0, flags)
    assert refused.value.flags == flags


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(23),
        bytes(24),
        bytes(25),
        CheckpointBarrier(1, 0).pack()[:-1] + b"\x80",
        CheckpointBarrier(1, 0).pack()[:16] + b"\x04" + bytes(7),
        CheckpointBarrier(1, 0).pack()[:14] + b"\x01\x00" + bytes(8),
    ],
    ids=["none", "short", "id 0", "long", "highest flag", "third flag", "epoch of 49 bits"],
)
def test_bytes_that_are_no_barrier_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedBarrier) as refused:
        CheckpointBarrier.unpack(data)
    assert refused.value.data == data.hex()


def test_bytes_with_wrong_numbers_keep_the_first_cause() -> None:
    for unpack, data in [(CheckpointBarrier.unpack, bytes(24)), (InjectBarrier.unpack, NO_ID)]:
        with pytest.raises(MalformedBarrier) as refused:
            unpack(data)
        assert isinstance(refused.value.__cause__, InvalidCheckpointBarrier)


@given(COMMANDS)
@example(InjectBarrier(2**64 - 1, 2**48 - 1, True))
@example(InjectBarrier(1, 2**48 - 1))
def test_a_packed_command_has_16_bytes_and_comes_back_as_it_was(command: InjectBarrier) -> None:
    packed = command.pack()
    assert len(packed) == 16
    assert InjectBarrier.unpack(packed) == command
    assert packed != EMPTY_COMMAND


def test_a_packed_command_has_each_field_in_its_place() -> None:
    word = InjectBarrier(5, 9, is_unaligned=True).word
    assert (word >> 64, word >> 16 & 2**48 - 1, word >> 15 & 1, word & 0x7FFF) == (5, 9, 1, 0)
    assert InjectBarrier(5, 9, is_unpublished=True).word & 0xFFFF == 1 << 14


def test_the_empty_command_unpacks_to_none() -> None:
    assert InjectBarrier.unpack(EMPTY_COMMAND) is None


@pytest.mark.parametrize(
    "data",
    [
        bytes(15),
        bytes(17),
        b"\x01" + InjectBarrier(1, 0).pack()[1:],
        b"\x00\x20" + InjectBarrier(1, 0).pack()[2:],
        NO_ID,
    ],
    ids=["short", "long", "lowest bit", "highest reserved bit", "epoch without id"],
)
def test_bytes_that_are_no_command_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedBarrier):
        InjectBarrier.unpack(data)


def test_a_barrier_is_shown_with_id_and_epoch() -> None:
    assert str(CheckpointBarrier.unaligned(7, 3)) == "unaligned checkpoint 7 of epoch 3"
    assert (
        repr(InjectBarrier(7, 3))
        == "InjectBarrier(checkpoint_id=7, epoch=3, is_unaligned=False, is_unpublished=False)"
    )
