"""A value comes back as it was, or is refused."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import InvalidFlowValue
from tidegate.flows.model.codecs import Codec


@dataclass
class Price:
    amount: float | None
    note: str = ""


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (float | None, nan),
        (float | None, -inf),
        (list[float | None], [1.0, None, inf]),
        (dict[str, float | None], {"a": nan}),
        (Price, Price(nan)),
        (float, nan),
    ],
)
def test_what_is_no_number_in_json_is_refused(type_: object, value: object) -> None:
    with pytest.raises(InvalidFlowValue) as refused:
        Codec("a price", type_).encode(value)
    assert refused.value.of == "a price"


finite = st.none() | st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.builds(Price, finite, st.sampled_from(["", "null"]))))
def test_numbers_and_their_absence_come_back(prices: list[Price]) -> None:
    codec = Codec("prices", list[Price])
    assert codec.decode(codec.encode(prices)) == prices
