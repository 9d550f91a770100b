"""Decisions of cutovers, on plain values."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.cutover.decide import (
    RETRIES,
    RetryBudget,
    differing,
    rows_of_whole,
    should_store_offset,
)
from tidegate.cutover.values import BackfilledPortion, Portion
from tidegate.errors import PortionsApart, StreamStalled

checksums = st.dictionaries(st.tuples(st.sampled_from("abcdef")), st.integers(0, 3))


@given(checksums, checksums)
def test_rows_differ_exactly_where_the_two_sides_do(
    source: dict[tuple[str, ...], int], index: dict[tuple[str, ...], int]
) -> None:
    found = differing(source, index)
    assert set(found) == {key for key, _ in source.items() ^ index.items()}
    assert all((how == "too much") == (key not in source) for key, how in found.items())


@given(told=st.integers(0, 9), offset=st.integers(0, 9), watermark=st.integers(0, 9) | st.none())
def test_an_offset_that_opens_a_gate_is_stored_at_once(
    told: int, offset: int, watermark: int | None
) -> None:
    is_told = should_store_offset(told, offset, applied=0, seconds=0.0, watermark=watermark)
    assert is_told == (watermark is not None and told < watermark <= offset)


@given(told=st.integers(0, 9), offset=st.integers(0, 9), applied=st.integers(0, 3))
def test_an_offset_never_goes_back(told: int, offset: int, applied: int) -> None:
    if should_store_offset(told, offset, applied, seconds=99.0, watermark=None):
        assert offset > told


def test_patience_ends_with_the_first_error_as_its_cause() -> None:
    patience, first = RetryBudget("articles_v2", bound=10.0), OSError("refused")
    assert patience.pause_after(first, now=0.0) < patience.pause_after(OSError("again"), now=5.0)
    with pytest.raises(StreamStalled) as stalled:
        patience.pause_after(OSError("still"), now=11.0)
    assert stalled.value.__cause__ is first
    assert stalled.value.seconds == 11.0


def test_what_goes_well_renews_patience() -> None:
    patience = RetryBudget("articles_v2", bound=10.0)
    patience.pause_after(OSError(), now=0.0)
    patience.reset()
    pauses = [patience.pause_after(OSError(), now=20.0 + at / 10) for at in range(20)]
    assert pauses[0] < pauses[-1] == RETRIES.longest


bounds = st.lists(st.integers(0, 99), unique=True, max_size=6).map(
    lambda them: [None, *((str(it),) for it in sorted(them)), None]
)


def filled(bounds: list[tuple[str] | None]) -> list[BackfilledPortion]:
    return [BackfilledPortion(Portion("v1", *it), 10) for it in pairwise(bounds)]


@given(bounds)
def test_portions_that_meet_are_whole(bounds: list[tuple[str] | None]) -> None:
    assert rows_of_whole(filled(bounds)) == 10 * (len(bounds) - 1)


@given(bounds, st.data())
def test_portions_of_which_one_is_missing_are_not_whole(
    bounds: list[tuple[str] | None], data: st.DataObject
) -> None:
    portions = filled(bounds)
    portions.pop(data.draw(st.integers(0, len(portions) - 1)))
    with pytest.raises(PortionsApart):
        rows_of_whole(portions)


def test_nothing_follows_the_last_portion() -> None:
    with pytest.raises(PortionsApart):
        rows_of_whole([*filled([None, None]), *filled([None, None])])
