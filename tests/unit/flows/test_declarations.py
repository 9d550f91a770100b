"""A flow that cannot work is refused when it is first used, at the line that is wrong."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tidegate.errors import (
    CyclicFlow,
    DeclarationError,
    DuplicateName,
    FlowInUse,
    GeneratorWithoutHandler,
    InvalidArgument,
    InvalidFlowValue,
    InvalidName,
    ItemsNotYielded,
    NotAList,
    SecondHandler,
    StateNeverWritten,
    TypesDiffer,
    UnknownFlowStep,
    UnstorableType,
    UntypedFunction,
    WrongParameters,
)
from tidegate.flows import Context, Flow, FlowStateReader, Tolerate
from tidegate.flows.model.codecs import Codec
from tidegate.flows.model.steps import StepKind


@dataclass(frozen=True)
class Order:
    number: int
    day: date
    price: Decimal


WRONG = "# wrong\n"


def plain(context: Context) -> int:
    return 1


def takes_text(context: Context, text: str) -> str:
    return text


def refused(kind: type[DeclarationError], flow: Flow | Callable[[], object]) -> Any:
    """The error that a flow is refused with, at the line that the calling test has marked.

    Whatever is refused at once is given as a function that declares it.
    """
    with pytest.raises(kind) as error:
        flow.definition if isinstance(flow, Flow) else flow()
    caller = inspect.stack()[1]
    lines, first = inspect.getsourcelines(caller.frame)
    (wrong,) = [(first + at, it.strip()) for at, it in enumerate(lines) if it.endswith(WRONG)]
    found = error.value.at
    assert Path(found.file) == Path(caller.filename)
    assert (found.line, found.text) == wrong
    return error.value


def test_a_whole_flow_is_put_in_order_with_everything_it_needs() -> None:
    flow = Flow("orders")

    @flow.generator(batch=10)
    def read(context: Context, day: date) -> Iterator[Order]:
        yield Order(1, day, Decimal("1.5"))

    @read.handler(retries=2)
    def price(context: Context, order: Order) -> Decimal:
        return order.price

    @flow.reduce(read)
    def total(context: Context, prices: Iterator[Decimal]) -> Decimal:
        return sum(prices, Decimal(0))

    @flow.step(depends_on=total)
    def report(context: Context, total: Decimal) -> str:
        return str(total)

    found = flow.definition
    assert list(found.steps) == ["read", "total", "report"]
    assert found.steps["read"].handler is price
    assert found.steps["total"].takes[0].is_many
    assert found.input.type is date
    rows = found.as_rows()["steps"]
    assert isinstance(rows, list)
    assert rows[0]["item_retries"] == 2


def test_a_declared_function_can_be_called_as_it_is() -> None:
    assert Flow("f").step(plain)(None) == 1  # type: ignore[arg-type]  # it ignores its context


def test_values_come_back_as_their_types() -> None:
    flow = Flow("orders")

    @flow.step
    def double(context: Context, order: Order) -> Order:
        return order

    codec = flow.definition.input
    order = Order(7, date(2025, 3, 1), Decimal("1.10"))
    assert codec.decode(codec.encode(order)) == order


@pytest.mark.parametrize("value", ["seven", None, object()])
def test_a_value_of_another_type_is_refused_where_it_is_given(value: object) -> None:
    flow = Flow("numbers")

    @flow.step
    def double(context: Context, number: int) -> int:
        return 2 * number

    with pytest.raises(InvalidFlowValue):
        flow.definition.input.encode(value)


def test_a_text_that_postgresql_cannot_hold_is_refused_where_it_is_given() -> None:
    flow = Flow("texts")
    flow.step(takes_text)
    with pytest.raises(InvalidFlowValue, match="NUL"):
        flow.definition.input.encode("a\0b")
    looks_like_it = r"a\u0000b\\u0000"
    assert flow.definition.input.encode(looks_like_it)


def test_a_dependency_of_another_type_names_both() -> None:
    flow = Flow("f")
    flow.step(plain)
    flow.step(depends_on="plain")(takes_text)  # wrong
    error = refused(TypesDiffer, flow)
    assert (error.function, error.wanted, error.given) == ("takes_text", "str", "int")


def test_a_handler_takes_what_its_generator_yields() -> None:
    flow = Flow("f")

    @flow.generator
    def numbers(context: Context) -> Iterator[int]:
        yield 1

    numbers.handler(takes_text)  # type: ignore[arg-type]  # wrong
    assert refused(TypesDiffer, flow).function == "takes_text"


def test_a_generator_without_handler_is_refused() -> None:
    flow = Flow("f")

    @flow.generator  # wrong
    def numbers(context: Context) -> Iterator[int]:
        yield 1

    assert refused(GeneratorWithoutHandler, flow).step == "numbers"


def test_a_generator_has_one_handler() -> None:
    flow = Flow("f")

    @flow.generator
    def texts(context: Context) -> Iterator[str]:
        yield "one"

    first = texts.handler(takes_text)
    error = refused(SecondHandler, lambda: texts.handler(name="second")(takes_text))  # wrong
    assert (error.flow, error.step, error.first) == ("f", "texts", first.at)


@pytest.mark.parametrize(
    ("type_", "given"), [(list[str], "list[str]"), (str, "str"), (Iterator, "Iterator")]
)
def test_a_generator_gives_its_items_one_by_one(type_: Any, given: str) -> None:
    def texts(context: Context) -> Any:
        return ["one", "two"]

    texts.__annotations__["return"] = type_
    flow = Flow("f")
    flow.generator(texts).handler(takes_text)  # wrong
    error = refused(ItemsNotYielded, flow)
    assert (error.flow, error.step, error.given) == ("f", "texts", given)


def test_a_map_step_takes_the_elements_of_a_list() -> None:
    flow = Flow("f")

    @flow.step
    def numbers(context: Context) -> list[int]:
        return [1]

    @flow.map_step(depends_on=numbers)
    def double(context: Context, number: int) -> int:
        return 2 * number

    @flow.map_step(depends_on=double)
    def show(context: Context, number: int) -> str:
        return str(number)

    assert [part.step.kind for part in flow.definition.steps.values()][1:] == [StepKind.MAP] * 2


def test_a_map_step_over_something_else_than_a_list_is_refused() -> None:
    flow = Flow("f")
    flow.step(plain)

    @flow.map_step(depends_on="plain")  # wrong
    def double(context: Context, number: int) -> int:
        return 2 * number

    error = refused(NotAList, flow)
    assert (error.flow, error.step, error.item) == ("f", "double", "int")
    assert (error.source, error.given) == ("plain", "int")


def test_a_map_step_over_a_list_of_another_type_names_the_elements() -> None:
    flow = Flow("f")

    @flow.step
    def numbers(context: Context) -> list[int]:
        return [1]

    flow.map_step(depends_on=numbers)(takes_text)  # wrong
    error = refused(TypesDiffer, flow)
    assert (error.wanted, error.source, error.given) == ("str", "step 'numbers'", "a list of int")


def test_a_reduce_over_a_step_without_items_is_refused() -> None:
    flow = Flow("f")

    @flow.step
    def numbers(context: Context) -> list[int]:
        return [1]

    @flow.reduce(numbers)  # wrong
    def total(context: Context, numbers: list[int]) -> int:
        return sum(numbers)

    assert refused(InvalidArgument, flow).argument == "of"


def test_steps_that_wait_for_each_other_are_refused() -> None:
    flow = Flow("f")

    @flow.step(depends_on="second")  # wrong
    def first(context: Context, number: int) -> int:
        return number

    @flow.step(depends_on="first")
    def second(context: Context, number: int) -> int:
        return number

    assert refused(CyclicFlow, flow).circle == "first → second"


def test_a_dependency_that_does_not_exist_is_refused() -> None:
    flow = Flow("f")
    flow.step(depends_on="nowhere")(takes_text)  # wrong
    assert refused(UnknownFlowStep, flow).step == "nowhere"


def test_a_step_of_the_same_name_is_refused_at_once() -> None:
    flow = Flow("f")
    flow.step(plain)
    with pytest.raises(DuplicateName):
        flow.step(plain)


def test_a_function_without_annotations_is_refused_at_once() -> None:
    def untyped(context, number):  # type: ignore[no-untyped-def]
        return number

    with pytest.raises(UntypedFunction, match="number, its result"):
        Flow("f").step(untyped)


def test_a_type_that_json_cannot_carry_is_refused() -> None:
    flow = Flow("f")

    @flow.step  # wrong
    def strange(context: Context) -> Callable[[], int]:
        return lambda: 1

    error = refused(UnstorableType, flow)
    assert (error.flow, error.of) == ("f", "the result of step 'strange'")


@pytest.mark.parametrize(
    ("type_", "told"), [(object, "object"), (list[object], "list[object]"), (complex, "complex")]
)
def test_a_type_that_json_cannot_represent_is_reported_in_one_line(type_: Any, told: str) -> None:
    def strange(context: Context) -> Any:
        return None

    strange.__annotations__["return"] = type_
    flow = Flow("f")
    flow.step(strange)  # wrong
    error = refused(UnstorableType, flow)
    assert (error.type, len(str(error).splitlines())) == (told, 1)


def test_a_type_with_a_part_that_is_not_found_is_refused() -> None:
    @dataclass
    class Half:
        other: "Missing"  # type: ignore[name-defined]  # noqa: F821, UP037

    flow = Flow("f")
    refused(UnstorableType, lambda: flow.state("half", Half))  # wrong


def test_more_parameters_than_dependencies_are_refused() -> None:
    flow = Flow("f")

    @flow.step  # wrong
    def two(context: Context, one: int, other: int) -> int:
        return one + other

    refused(WrongParameters, flow)


def test_two_steps_agree_on_the_input() -> None:
    flow = Flow("f")
    flow.step(takes_text)

    @flow.step  # wrong
    def double(context: Context, number: int) -> int:
        return 2 * number

    assert refused(TypesDiffer, flow).function == "double"


def test_a_signal_is_the_last_parameter() -> None:
    flow = Flow("f")

    @flow.step
    def ask(context: Context) -> str:
        return "?"

    @flow.step(depends_on=ask, signal=bool)
    def act(context: Context, question: str, approval: bool) -> str:
        return question if approval else ""

    assert flow.definition.steps["act"].signal is not None

    @Flow("g").step(signal=bool)
    def no_place_for_it(context: Context) -> str:
        return ""

    other = Flow("h")
    other.step(signal=bool)(no_place_for_it.function)  # wrong
    refused(TypesDiffer, other)


def test_a_wait_for_a_key_that_no_step_writes_is_refused() -> None:
    flow = Flow("f")
    offset = flow.state("offset", int, monotonic=True)
    flow.step(reads=offset)(plain)  # wrong
    assert refused(StateNeverWritten, flow).key == "offset"


def test_a_wait_for_a_key_from_outside_or_of_another_step_is_fine() -> None:
    flow = Flow("f")
    offset = flow.state("offset", int)
    outside = flow.state("outside", int, external=True)

    def reached(state: FlowStateReader) -> bool:
        return state[offset] > state[outside]

    flow.step(reads=[offset, outside], wait_for=reached)(plain)
    flow.step(writes=offset, name="writer")(plain)
    rows = flow.definition.as_rows()["keys"]
    assert isinstance(rows, list)
    assert rows[0]["writers"] == ["writer"]


def test_a_gate_without_declared_keys_is_refused() -> None:
    flow = Flow("f")
    flow.step(wait_for=lambda state: True)(plain)  # wrong
    assert refused(InvalidArgument, flow).argument == "reads"


def test_a_flow_in_use_takes_no_more_steps() -> None:
    flow = Flow("f")
    flow.step(plain)
    flow.definition  # noqa: B018
    with pytest.raises(FlowInUse):
        flow.step(name="late")(plain)


@pytest.mark.parametrize(
    ("argument", "options"),
    [
        ("retries", {"retries": -1}),
        ("timeout", {"timeout": 0}),
        ("concurrency", {"concurrency": 0}),
        ("backoff", {"backoff": 3}),
        ("depends_on", {"depends_on": [3]}),
        ("condition", {"condition": "yes"}),
    ],
)
def test_options_that_mean_nothing_are_refused_at_once(
    argument: str, options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArgument) as error:
        Flow("f").step(**options)(plain)
    assert error.value.argument == argument


@pytest.mark.parametrize("policy", [Tolerate(), Tolerate(count=-1), Tolerate(share=2.0), "none"])
def test_a_tolerance_that_means_nothing_is_refused_at_once(policy: Any) -> None:
    with pytest.raises(InvalidArgument):
        Flow("f").map_step(on_fail=policy)(takes_text)


def test_a_name_that_could_not_be_a_file_is_refused() -> None:
    with pytest.raises(InvalidName):
        Flow("a/b")


def test_a_coroutine_is_refused_at_once() -> None:
    async def later(context: Context) -> int:
        return 1

    with pytest.raises(InvalidArgument):
        Flow("f").step(later)


def test_a_function_without_room_for_its_context_is_refused_at_once() -> None:
    def alone() -> int:
        return 1

    with pytest.raises(WrongParameters):
        Flow("f").step(alone)


def test_a_condition_takes_what_its_step_takes() -> None:
    flow = Flow("f")
    flow.step(plain)

    @flow.step(depends_on="plain", condition=lambda: True)  # wrong
    def other(context: Context, number: int) -> int:
        return number

    assert refused(InvalidArgument, flow).argument == "condition"


@pytest.mark.parametrize("value", ["\ud800", float("nan"), float("inf")])
def test_a_value_that_json_cannot_carry_is_refused_where_it_is_given(value: object) -> None:
    with pytest.raises(InvalidFlowValue):
        Codec("a value", int | float | str).encode(value)


def test_a_value_that_is_nested_without_an_end_is_refused_where_it_is_given() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(InvalidFlowValue):
        Codec("a value", list[Any]).encode(value)


def test_a_value_that_is_too_large_for_a_document_is_refused_where_it_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidegate.flows.model.codecs.MAX_CHARS", 10)
    with pytest.raises(InvalidFlowValue, match="store it elsewhere"):
        Codec("a value", str).encode("x" * 10)
