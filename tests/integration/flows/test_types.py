"""What is given to a run from outside is of the type that its flow declares, or is refused."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.flows.conftest import Hand
from tests.integration.flows.declared import approved, gated
from tests.integration.flows.test_commands import Command, command
from tidegate.errors import InvalidFlowValue
from tidegate.flows.model.codecs import Codec
from tidegate.store.flows.runs import flow_state, set_external_state, signal_flow
from tidegate.store.runs.message_codec import as_json

__all__ = ["command"]


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


class Part(msgspec.Struct):
    """Holds itself, so that its schema does."""

    name: str
    size: Size
    title: str = ""
    parts: list[Part] = []


class Pair(msgspec.Struct, array_like=True):
    left: int
    right: float | None = None


class Plus(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    amount: Decimal


class Minus(msgspec.Struct, tag=True):
    amount: int


WRONG = [
    (int, '"7"'),
    (int, "1.5"),
    (int, "true"),
    (bool, '"yes"'),
    (str, "null"),
    (float, '"1"'),
    (int | None, '"x"'),
    (list[int], '[1, "2"]'),
    (dict[str, int], '{"a": "b"}'),
    (tuple[int, str], "[1]"),
    (Size, '"m"'),
    (Literal["a", "b"], '"c"'),
    (Part, '{"name": "x"}'),
    (Part, '{"name": "x", "size": "s", "parts": [{"name": 1, "size": "s"}]}'),
    (Pair, '["x"]'),
    (Plus | Minus, '{"type": "Times"}'),
    (Plus, '{"type": "Plus", "amount": "1", "more": 1}'),
    (UUID, '"x"'),
    (date, '"soon"'),
    (Annotated[int, msgspec.Meta(ge=1, lt=5)], "5"),
    (Annotated[str, msgspec.Meta(max_length=2)], '"abc"'),
]  # fmt: skip

parts = st.recursive(
    st.builds(Part, name=st.text("ab", max_size=3), size=st.sampled_from(Size)),
    lambda below: st.builds(
        Part, name=st.just("x"), size=st.just(Size.SMALL), parts=st.lists(below, max_size=2)
    ),
    max_leaves=5,
)
RIGHT: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, st.integers()),
    (bool, st.booleans()),
    (str, st.text('aé"\\ ')),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False, places=3)),
    (datetime, st.datetimes()),
    (date, st.dates()),
    (timedelta, st.timedeltas(max_value=timedelta(days=9), min_value=timedelta())),
    (UUID, st.uuids()),
    (bytes, st.binary()),
    (Part, parts),
    (Pair, st.builds(Pair, st.integers(), st.none() | st.just(1.5))),
    (Plus | Minus, st.builds(Plus, st.just(Decimal("1.5"))) | st.builds(Minus, st.integers())),
    (dict[int, list[bool]], st.dictionaries(st.integers(), st.lists(st.booleans()))),
    (tuple[int, ...], st.lists(st.integers()).map(tuple)),
    (set[int], st.sets(st.integers())),
    (Literal["a", 3] | None, st.sampled_from(["a", 3, None])),
    (Any, st.integers() | st.none()),
]


def misfit(connection: psycopg.Connection, type_: Any, text: str) -> str | None:
    """What the database says of a value, as JSON, of a type."""
    schema = as_json(Codec("it", type_).schema)
    asked = "SELECT tidegate.flow_misfit(%(s)s::jsonb, %(v)s::jsonb, %(s)s::jsonb)"
    row = connection.execute(asked, {"s": schema, "v": text}).fetchone()
    assert row is not None
    found: str | None = row[0]
    return found


@pytest.fixture(scope="module")
def connection(template: str, new_database: Callable[[str], str]) -> Iterator[psycopg.Connection]:
    with psycopg.connect(new_database(template), autocommit=True) as connected:
        yield connected


@pytest.mark.parametrize(("type_", "text"), WRONG)
def test_what_a_worker_could_not_read_does_not_fit(
    type_: Any, text: str, connection: psycopg.Connection
) -> None:
    with pytest.raises(InvalidFlowValue):
        Codec("it", type_).decode(text)
    assert misfit(connection, type_, text) is not None


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(which=st.sampled_from(range(len(RIGHT))), data=st.data())
def test_what_python_writes_fits(
    which: int, data: st.DataObject, connection: psycopg.Connection
) -> None:
    type_, values = RIGHT[which]
    text = Codec("it", type_).encode(data.draw(values))
    assert misfit(connection, type_, text) is None


def test_a_signal_of_another_type_is_refused_by_the_command(command: Command, hand: Hand) -> None:
    run = hand.begin(approved, '"now?"')
    refused = command("signal", str(run), "act", '"yes"')
    assert refused.exit_code == 1
    assert "it is string, not boolean" in refused.output
    assert hand.ask("SELECT count(*) FROM tidegate.flow_signal") == [(0,)]
    assert command("signal", str(run), "act", "true").exit_code == 0


def test_a_state_of_another_type_is_refused_by_the_command(command: Command, hand: Hand) -> None:
    run = hand.begin(gated, "3")
    refused = command("set", str(run), "offset", '"far"')
    assert refused.exit_code == 1
    assert "it is string, not integer" in refused.output
    assert command("set", str(run), "offset", "2").exit_code == 0
    assert hand.do(flow_state, run)[1]["offset"].json == "2"


def test_statements_are_refused_values_of_another_type(hand: Hand) -> None:
    run = hand.begin(gated, "3")
    with pytest.raises(InvalidFlowValue) as refused:
        hand.do(set_external_state, run, "offset", "1.5", "psql")
    assert (refused.value.of, refused.value.value) == ("the state offset", "1.5")
    other = hand.begin(approved, '"?"')
    with pytest.raises(InvalidFlowValue):
        hand.do(signal_flow, other, "act", "1", "psql")


def test_a_run_that_was_begun_without_types_takes_any(hand: Hand) -> None:
    run = hand.begin(approved, '"?"')
    hand.ask("UPDATE tidegate.flow_step SET signal_type = NULL RETURNING 1")
    hand.do(signal_flow, run, "act", "1", "psql")
