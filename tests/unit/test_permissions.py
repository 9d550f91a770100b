"""Others lose what they may do; a group keeps only what it was given on purpose."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.permissions import restricted

modes = st.integers(0, 0o7777)


@given(modes)
def test_others_may_do_nothing(mode: int) -> None:
    assert restricted(mode) & 0o007 == 0


@given(modes)
def test_nothing_is_granted_and_its_user_keeps_everything(mode: int) -> None:
    assert restricted(mode) & ~mode == 0
    assert restricted(mode) & 0o7700 == mode & 0o7700


@given(modes)
def test_a_group_keeps_its_rights_only_if_it_had_more_than_others(mode: int) -> None:
    group, others = mode >> 3 & 7, mode & 7
    kept = group if group & ~others else 0
    assert restricted(mode) >> 3 & 7 == kept
