"""A source ends once, exactly when all of its declared chunks are there, in whichever order."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import (
    BatchAborted,
    ChunkConflict,
    ChunksBeyond,
    ChunksMissing,
    CountConflict,
    InvalidChunkNumber,
    RunEnded,
    RunError,
    SourceEnded,
)
from tidegate.store.runs.chunks import (
    Chunk,
    ChunkDelivery,
    Ending,
    SourceFacts,
    decide_delivery,
    decide_ending,
)
from tidegate.store.runs.runs import RunInfo, RunState

RUN = RunInfo(1, "sales", "march", 1, RunState.OPEN)
FRESH = SourceFacts(RUN, "orders", delivered=0, declared=None)


def chunk(number: int, sha256: str = "a") -> Chunk:
    return Chunk("orders", number, sha256, rows=1, bytes=1, files=(), shard=0)


@dataclass
class Source:
    """What the store keeps of a source, and how many times it would have sent END."""

    digests: dict[int, str] = field(default_factory=dict)
    declared: int | None = None
    ends: int = 0

    @property
    def facts(self) -> SourceFacts:
        return SourceFacts(RUN, "orders", len(self.digests), self.declared)

    def deliver(self, number: int, sha256: str) -> None:
        known = self.digests.get(number)
        delivery = decide_delivery(self.facts, chunk(number, sha256), known)
        self.digests[number] = sha256
        self.ends += delivery is ChunkDelivery.LAST

    def declare(self, chunks: int | None) -> None:
        largest = max(self.digests, default=0)
        missing = tuple(n for n in range(1, largest) if n not in self.digests)
        beyond = tuple(sorted(n for n in self.digests if chunks is not None and n > chunks))
        ending = decide_ending(self.facts, chunks, missing, beyond)
        if ending is not Ending.REPEATED:
            self.declared = len(self.digests) if chunks is None else chunks
        self.ends += ending is Ending.COMPLETE

    @property
    def is_complete(self) -> bool:
        return self.declared is not None and set(self.digests) == set(range(1, self.declared + 1))


deliveries = st.tuples(st.integers(0, 5), st.sampled_from("ab"))
declarations = st.none() | st.integers(-1, 5)


@given(st.lists(st.one_of(deliveries, declarations), max_size=25))
def test_end_is_sent_once_and_only_when_everything_declared_is_there(
    calls: list[tuple[int, str] | int | None],
) -> None:
    source = Source()
    for call in calls:
        before = (dict(source.digests), source.declared)
        try:
            source.deliver(*call) if isinstance(call, tuple) else source.declare(call)
        except RunError:
            assert (source.digests, source.declared) == before
        assert source.ends == source.is_complete
        if source.declared is not None:
            assert set(source.digests) <= set(range(1, source.declared + 1))
            assert source.declared == (before[1] if before[1] is not None else source.declared)


@given(st.integers(1, 6).flatmap(lambda n: st.tuples(st.just(n), st.permutations(range(n + 1)))))
def test_any_order_of_chunks_and_declaration_ends_the_source(case: tuple[int, list[int]]) -> None:
    count, order = case
    source = Source()
    for number in order:
        source.declare(count) if number == 0 else source.deliver(number, "a")
    assert source.ends == 1


def test_other_content_under_a_number_is_a_conflict_that_shows_both_digests() -> None:
    with pytest.raises(ChunkConflict) as conflict:
        decide_delivery(replace(FRESH, delivered=1), chunk(1, "b" * 64), known="a" * 64)
    assert "aaaaaaaaaaaa…" in str(conflict.value)
    assert "bbbbbbbbbbbb…" in str(conflict.value)


def test_a_chunk_beyond_the_count_is_refused() -> None:
    with pytest.raises(SourceEnded) as refused:
        decide_delivery(replace(FRESH, declared=2), chunk(3), known=None)
    assert (refused.value.number, refused.value.declared) == (3, 2)


@pytest.mark.parametrize("number", [0, -1, 2**63])
def test_what_is_no_number_is_refused(number: int) -> None:
    with pytest.raises(InvalidChunkNumber):
        decide_delivery(FRESH, chunk(number), known=None)


def test_a_source_without_chunks_may_end() -> None:
    assert decide_ending(FRESH, None) is Ending.COMPLETE
    assert decide_ending(FRESH, 0) is Ending.COMPLETE


def test_a_source_with_gaps_needs_a_count() -> None:
    with pytest.raises(ChunksMissing) as refused:
        decide_ending(replace(FRESH, delivered=2), None, missing=(2, 3))
    assert refused.value.missing == (2, 3)


def test_a_count_below_what_was_delivered_is_refused_with_the_numbers() -> None:
    with pytest.raises(ChunksBeyond) as refused:
        decide_ending(replace(FRESH, delivered=2), 1, beyond=(2,))
    assert refused.value.beyond == (2,)


def test_another_count_is_refused_and_the_same_is_harmless() -> None:
    declared = replace(FRESH, delivered=1, declared=2)
    assert decide_ending(declared, 2) is Ending.REPEATED
    with pytest.raises(CountConflict) as refused:
        decide_ending(declared, 3)
    assert (refused.value.chunks, refused.value.declared) == (3, 2)


@pytest.mark.parametrize("state", [RunState.CANCELLED, RunState.FAILED])
def test_a_run_that_was_given_up_says_so_also_to_who_repeats(state: RunState) -> None:
    closed = replace(FRESH, run=replace(RUN, state=state, cause="disk full"), declared=1)
    with pytest.raises(RunEnded) as refused:
        decide_delivery(closed, chunk(1), known="a")
    assert (refused.value.how, refused.value.cause) == (state.value, "disk full")
    with pytest.raises(RunEnded):
        decide_ending(closed, 1)


def test_in_a_run_that_ended_well_a_repetition_is_harmless_and_anything_else_refused() -> None:
    ended = replace(FRESH, run=replace(RUN, state=RunState.ENDED), delivered=1, declared=1)
    assert decide_delivery(ended, chunk(1), known="a") is ChunkDelivery.REPEATED
    assert decide_ending(ended, 1) is Ending.REPEATED
    with pytest.raises(RunEnded):
        decide_delivery(ended, chunk(2), known=None)


@given(delivered=st.integers(0, 9), last_batch=st.none() | st.integers(1, 10))
def test_a_source_ends_with_what_it_has_only_when_every_batch_begun_is_there(
    delivered: int, last_batch: int | None
) -> None:
    facts = replace(FRESH, delivered=delivered, last_batch=last_batch)
    if last_batch is None or last_batch <= delivered:
        assert decide_ending(facts, None) is Ending.COMPLETE
    else:
        with pytest.raises(BatchAborted) as told:
            decide_ending(facts, None)
        assert (told.value.batch, told.value.chunk) == (last_batch - 1, last_batch)
        assert decide_ending(facts, delivered) is Ending.COMPLETE, "it was said to be left out"
