"""Ids of manifests: UUIDs of version 7 that are sorted by the order in which they were made."""

from __future__ import annotations

import pickle
from itertools import pairwise
from threading import Thread
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.dataflow import CheckpointId, CheckpointIds
from tidegate.errors import InvalidCheckpointId


def test_an_id_is_a_uuid_of_version_7() -> None:
    id = CheckpointId.new()
    assert (id.version, id.variant) == (7, UUID(int=0x8 << 60).variant)


def test_ids_of_one_process_only_grow_also_within_a_millisecond() -> None:
    ids = [CheckpointId.new() for _ in range(5_000)]
    assert sorted(set(ids)) == ids
    assert sorted(str(id) for id in ids) == [str(id) for id in ids]
    assert sorted(id.bytes for id in ids) == [id.bytes for id in ids]


@given(st.lists(st.integers(0, 2**47), min_size=2, max_size=20))
def test_ids_only_increase_whatever_the_clock_does(milliseconds: list[int]) -> None:
    times = iter(milliseconds)
    ids = CheckpointIds(clock=lambda: next(times) * 1_000_000)
    taken = [ids.take() for _ in milliseconds]
    assert all(before < after for before, after in pairwise(taken))
    assert all(id.version == 7 for id in taken)


def test_an_id_has_its_creation_time() -> None:
    ids = CheckpointIds(clock=lambda: 1_700_000_000_123_456_789)
    assert ids.take().milliseconds == 1_700_000_000_123


def test_several_threads_never_get_the_same_id() -> None:
    ids = CheckpointIds()
    taken: list[list[CheckpointId]] = [[] for _ in range(4)]
    threads = [
        Thread(target=lambda mine=mine: mine.extend(ids.take() for _ in range(1_000)))
        for mine in taken
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len({id for mine in taken for id in mine}) == 4_000


@given(st.integers(0, 2**47))
def test_an_id_survives_text_bytes_and_pickling(milliseconds: int) -> None:
    id = CheckpointIds(clock=lambda: milliseconds * 1_000_000).take()
    assert CheckpointId.from_text(str(id)) == id
    assert CheckpointId.from_text(str(id).upper()) == id
    assert CheckpointId.from_bytes(id.bytes) == id
    assert pickle.loads(pickle.dumps(id)) == id


@pytest.mark.parametrize(
    "text",
    ["", "seven", "8b2f1f3e-8a5b-4a4e-9d4b-2f1c55f3a0d7", "{0190163d-8694-739b-aea5-966c26f8ad91}"],
)
def test_text_that_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidCheckpointId) as refused:
        CheckpointId.from_text(text)
    assert refused.value.text == text


@pytest.mark.parametrize("data", [b"", bytes(15), bytes(16), bytes(17)])
def test_bytes_that_are_no_id_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidCheckpointId):
        CheckpointId.from_bytes(data)
