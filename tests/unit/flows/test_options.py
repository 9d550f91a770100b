"""Options that could not be kept are refused where they are written."""

from __future__ import annotations

from math import inf, nan

import pytest

from tidegate.errors import InvalidArgument, SourceLine
from tidegate.flows import Backoff
from tidegate.flows.model.options import MAX_SECONDS, retry_options

HERE = SourceLine("shop.py", 1)


@pytest.mark.parametrize(
    "backoff",
    [
        "often",
        Backoff(first=-1),
        Backoff(first=nan),
        Backoff(first=inf),
        Backoff(longest=1e300),
        Backoff(longest=inf),
        Backoff(longest=10**400),
        Backoff(factor=0.5),
        Backoff(factor=inf),
        Backoff(jitter=1.5),
        Backoff(jitter="much"),  # type: ignore[arg-type]
    ],
)
def test_a_backoff_that_has_no_pauses_is_refused(backoff: object) -> None:
    with pytest.raises(InvalidArgument) as refused:
        retry_options({"backoff": backoff}, HERE)
    assert (refused.value.at, refused.value.argument) == (HERE, "backoff")


@pytest.mark.parametrize("timeout", [0, -1, nan, inf, 1e300, True, "long"])
def test_a_timeout_that_is_no_time_is_refused(timeout: object) -> None:
    with pytest.raises(InvalidArgument) as refused:
        retry_options({"timeout": timeout}, HERE)
    assert refused.value.argument == "timeout"


def test_what_is_possible_is_kept() -> None:
    backoff = Backoff(first=0, factor=1, longest=MAX_SECONDS, jitter=0)
    assert retry_options({"backoff": backoff, "timeout": MAX_SECONDS}, HERE).backoff == backoff
