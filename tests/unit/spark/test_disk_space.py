"""A part of every disk is kept free."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import SpaceReserved
from tidegate.spark.ingest.disk_space import DiskReserve, floor_of, reserve_of, space_at

BYTES = st.integers(0, 1 << 50)


@given(BYTES, BYTES)
def test_a_reserve_is_what_is_wanted_and_never_more_than_a_small_part_of_the_disk(
    total: int, wanted: int
) -> None:
    reserve = reserve_of(total, wanted)
    assert reserve <= wanted
    assert reserve <= total / 20
    assert reserve == wanted or reserve == total // 20
    assert floor_of(total) <= total / 40


def test_what_would_take_of_the_reserve_is_refused_with_the_figures(tmp_path: Path) -> None:
    space = space_at(str(tmp_path / "not there yet"))
    assert space is not None
    reserve = DiskReserve([str(tmp_path)], 1)
    reserve.check()
    with pytest.raises(SpaceReserved) as refused:
        reserve.check(incoming=2 * space.total)
    assert (refused.value.where, refused.value.reserve) == (str(tmp_path), 1)


def test_without_a_reserve_and_elsewhere_than_on_a_disk_nothing_is_refused(tmp_path: Path) -> None:
    DiskReserve([str(tmp_path)], 0).check(incoming=1 << 60)
    DiskReserve(["s3://bucket/data"], 1 << 60).check(incoming=1 << 60)
    assert space_at("s3://bucket/data") is None
