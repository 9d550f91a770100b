"""Numbers in addresses: taken as what they are, or refused."""

from __future__ import annotations

import msgspec
import pytest
from starlette.requests import Request

from tidegate.checkpoint import Checkpoints
from tidegate.errors import InvalidRequest
from tidegate.http.requests import LARGEST, BeginRun, chunk_address, parse_checkpoint, query_number


def request(query: str = "", number: str = "1") -> Request:
    path = {"run": "march", "source": "sales", "number": number}
    scope = {"type": "http", "headers": [], "query_string": query.encode(), "path_params": path}
    return Request(scope)


@pytest.mark.parametrize(
    ("query", "number"), [("", 7), ("limit=0", 0), ("limit=0012", 12), ("limit=100", 100)]
)
def test_a_number_among_the_parameters_is_read(query: str, number: int) -> None:
    assert query_number(request(query), "limit", 7, most=100) == number


@pytest.mark.parametrize(
    "text", ["", "-1", "many", "1.0", "²", "101", "0" * 19 + "12", "0" * 20 + "9" * 20, "9" * 5000]
)
def test_what_is_no_number_or_too_large_a_one_is_refused_in_few_words(text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        query_number(request(f"limit={text}"), "limit", 7, most=100)
    assert len(str(refused.value)) < 200


def test_the_largest_number_is_taken_and_the_next_is_not() -> None:
    assert query_number(request(f"after={LARGEST}"), "after", 0) == LARGEST
    with pytest.raises(InvalidRequest):
        query_number(request(f"after={LARGEST + 1}"), "after", 0)


def test_a_chunk_has_the_number_in_its_address() -> None:
    assert chunk_address(request(number="0012")) == ("march", "sales", 12)


@pytest.mark.parametrize("text", ["one", "-1", "", "0" * 19 + "12", "9" * 5000])
def test_no_chunk_is_taken_for_another_because_of_its_length(text: str) -> None:
    with pytest.raises(InvalidRequest):
        chunk_address(request(number=text))


def test_a_checkpoint_is_the_latest_or_has_a_number() -> None:
    assert parse_checkpoint("latest").number is None
    assert parse_checkpoint("12").number == 12


@pytest.mark.parametrize("text", ["", "0", "last", "-1", "1.5", "9" * 5000])
def test_an_invalid_checkpoint_is_refused_with_a_short_message(text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_checkpoint(text)
    assert len(str(refused.value)) < 200


def begun(checkpoints: object) -> Checkpoints | None:
    body = {"run": "march", "checkpoints": checkpoints}
    return msgspec.json.decode(msgspec.json.encode(body), type=BeginRun).checkpoint_options()


def test_checkpoint_options_have_defaults() -> None:
    assert begun(None) is None
    assert begun({}) == Checkpoints()
    assert begun({"every": 5, "tolerated": None}) == Checkpoints(every=5.0, tolerated=None)
    everything = Checkpoints(every=1.0, pause=2.0, alignment=3.0, tolerated=6, retained=7)
    assert begun(msgspec.to_builtins(everything)) == everything


@pytest.mark.parametrize(
    "wrong",
    [
        {"every": 0.01},
        {"pause": 0},
        {"alignment": -1},
        {"alignment": "long"},
        {"pause": None},
        {"commit": 1e12},
        {"retained": 0},
        {"retained": 100_000},
        {"tolerated": -1},
        {"often": 1},
    ],
)
def test_a_cutting_beyond_its_bounds_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        begun(wrong)
