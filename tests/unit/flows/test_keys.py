"""Keys of a flow's state, as they are declared."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Annotated
from uuid import UUID

import msgspec
import pytest

from tidegate.errors import InvalidArgument
from tidegate.flows import Flow

Natural = Annotated[int, msgspec.Meta(ge=0)]


@pytest.mark.parametrize("type_", [int, float, str, bool, date, UUID, Natural])
def test_what_json_keeps_in_order_may_be_monotonic(type_: type) -> None:
    assert Flow("ordered").state("offset", type_, monotonic=True).is_monotonic


@pytest.mark.parametrize("type_", [Decimal, datetime, timedelta, list[int], int | None])
def test_what_json_does_not_keep_in_order_is_refused_as_monotonic(type_: type) -> None:
    flow = Flow("unordered")
    with pytest.raises(InvalidArgument) as refused:
        flow.state("offset", type_, monotonic=True)
    assert (refused.value.operator, refused.value.argument) == ("state key", "monotonic")
    assert 'flow.state("offset", type_, monotonic=True)' in refused.value.at.text
