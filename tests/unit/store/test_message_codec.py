"""Messages survive being rows, and ids depend on nothing but their cause."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.dataflow import (
    Barrier,
    BarrierKind,
    Batch,
    CheckpointBarrier,
    Event,
    Instant,
    InstantKind,
    SinkResult,
    StreamMessage,
    Watermark,
)
from tidegate.store.runs.message_codec import decode, encode, message_id

RUN = "march#1"
NUMBERS = st.integers(1, 2**53)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
MESSAGES: st.SearchStrategy[StreamMessage] = st.one_of(
    st.builds(Event, JSON, st.just(RUN), st.none() | st.integers(0, 9), st.integers(0, 3), NUMBERS),
    st.builds(Watermark, st.integers(-(2**53), 2**53), st.just(RUN)),
    st.builds(Barrier, NUMBERS, st.sampled_from(BarrierKind), st.just(RUN), st.none() | NUMBERS),
    st.builds(CheckpointBarrier, NUMBERS, st.integers(0, 2**48 - 1), st.integers(0, 1)).map(
        lambda its: Barrier.of_checkpoint(its, RUN)
    ),
    st.builds(Instant, NUMBERS, st.sampled_from(InstantKind), st.just(RUN), NUMBERS),
)


@given(MESSAGES)
def test_what_is_encoded_is_decoded_as_it_was(message: StreamMessage) -> None:
    assert decode(*encode(message), RUN) == message


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="rumour"):
        decode("rumour", "{}", RUN)


def test_an_id_is_the_same_in_every_process() -> None:
    assert str(message_id("march#1", "s1", 7)) == "4d56e8fc-1a04-5e7f-a4f3-f0c9e0a4e2ac"


@given(st.lists(st.text(), max_size=4), st.lists(st.text(), max_size=4))
def test_different_causes_give_different_ids(one: list[str], other: list[str]) -> None:
    assert (message_id(*one) == message_id(*other)) is (one == other)


@pytest.mark.parametrize(
    "payload", [Batch(("a.parquet",), 3, 10), SinkResult("top", Batch(("a.parquet",), 3))]
)
def test_batches_and_results_are_decoded_as_values(payload: Batch | SinkResult) -> None:
    message = Event(payload, RUN)
    assert decode(*encode(message), RUN) == message


def test_what_only_looks_like_a_batch_is_left_to_the_task_that_reads_it() -> None:
    message = Event({"files": 1, "rows": "many"}, RUN)
    assert decode(*encode(message), RUN) == message
