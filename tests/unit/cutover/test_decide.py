"""Decisions of cutovers, on plain values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.cutover.decide import LONGEST_PAUSE, Patience, differing, is_worth_telling
from tidegate.errors import StreamStalled

checksums = st.dictionaries(st.tuples(st.sampled_from("abcdef")), st.integers(0, 3))


@given(checksums, checksums)
def test_rows_differ_exactly_where_the_two_sides_do(
    source: dict[tuple[str, ...], int], index: dict[tuple[str, ...], int]
) -> None:
    found = differing(source, index)
    assert set(found) == {key for key, _ in source.items() ^ index.items()}
    assert all((how == "too much") == (key not in source) for key, how in found.items())


@given(told=st.integers(0, 9), offset=st.integers(0, 9), watermark=st.integers(0, 9) | st.none())
def test_an_offset_that_opens_a_gate_is_told_at_once(
    told: int, offset: int, watermark: int | None
) -> None:
    is_told = is_worth_telling(told, offset, applied=0, seconds=0.0, watermark=watermark)
    assert is_told == (watermark is not None and told < watermark <= offset)


@given(told=st.integers(0, 9), offset=st.integers(0, 9), applied=st.integers(0, 3))
def test_an_offset_never_goes_back(told: int, offset: int, applied: int) -> None:
    if is_worth_telling(told, offset, applied, seconds=99.0, watermark=None):
        assert offset > told


def test_patience_ends_with_the_first_error_as_its_cause() -> None:
    patience, first = Patience("articles_v2", bound=10.0), OSError("refused")
    assert patience.bear(first, now=0.0) < patience.bear(OSError("again"), now=5.0)
    with pytest.raises(StreamStalled) as stalled:
        patience.bear(OSError("still"), now=11.0)
    assert stalled.value.__cause__ is first
    assert stalled.value.seconds == 11.0


def test_what_goes_well_renews_patience() -> None:
    patience = Patience("articles_v2", bound=10.0)
    patience.bear(OSError(), now=0.0)
    patience.relieve()
    pauses = [patience.bear(OSError(), now=20.0 + at / 10) for at in range(20)]
    assert pauses[0] < pauses[-1] == LONGEST_PAUSE
