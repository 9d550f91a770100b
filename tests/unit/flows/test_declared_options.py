"""Options that a decorator does not have are refused at the line, and those it has are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.unit.flows.test_declarations import plain, refused, takes_text
from tidegate.errors import InvalidArgument, UnknownOption
from tidegate.flows import Context, FailAtFirst, Flow, GeneratorStep
from tidegate.flows.model.options import OPTIONS

Options = dict[str, Any]
DECORATORS: dict[str, Callable[..., Any]] = {
    "step": Flow.step,
    "map_step": Flow.map_step,
    "generator": Flow.generator,
    "reduce": Flow.reduce,
    "handler": GeneratorStep.handler,
}


def texts(context: Context) -> Iterator[str]:
    yield "one"


def decorator(name: str, options: Options) -> Callable[..., Any]:
    """A decorator that is given options, and whatever it needs besides."""
    flow: Any = Flow("f")
    generator = flow.generator(texts)
    if name == "reduce":
        return flow.reduce(generator, **options)  # type: ignore[no-any-return]
    return getattr(generator if name == "handler" else flow, name)(**options)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("name", "option", "nearest"),
    [
        ("step", "retry", "retries"),
        ("generator", "max_inflight", "max_in_flight"),
        ("handler", "retry", "retries"),
        ("reduce", "nonsense", ""),
        ("map_step", "depend_on", "depends_on"),
    ],
)
def test_an_option_that_does_not_exist_is_refused_with_the_nearest(
    name: str, option: str, nearest: str
) -> None:
    with pytest.raises(UnknownOption) as error:
        decorator(name, {option: 3})
    found = error.value
    assert (found.decorator, found.option, found.nearest) == (name, option, nearest)
    assert found.known.split(", ") == list(OPTIONS[name])
    assert (found.elsewhere, found.at.file) == ("", __file__)


@pytest.mark.parametrize(
    ("name", "option", "elsewhere"),
    [
        ("step", "on_fail", "map_step, generator"),
        ("map_step", "batch", "generator"),
        ("reduce", "depends_on", "step, map_step, generator"),
        ("reduce", "on_fail", "map_step, generator"),
        ("handler", "writes", "step, map_step, generator, reduce"),
    ],
)
def test_an_option_of_another_decorator_is_refused_with_those_that_have_it(
    name: str, option: str, elsewhere: str
) -> None:
    with pytest.raises(UnknownOption) as error:
        decorator(name, {option: FailAtFirst()})
    assert (error.value.option, error.value.elsewhere) == (option, elsewhere)


def test_an_option_of_a_step_is_refused_at_its_line() -> None:
    flow = Flow("f")

    def declare() -> None:
        @flow.step(retry=3)  # type: ignore[call-overload,untyped-decorator]  # wrong
        def late(context: Context) -> int:
            return 1

    assert refused(UnknownOption, declare).option == "retry"


def test_an_option_of_a_handler_is_refused_at_its_line() -> None:
    generator: Any = Flow("f").generator(texts)
    error = refused(UnknownOption, lambda: generator.handler(timeot=3)(takes_text))  # wrong
    assert (error.option, error.nearest) == ("timeot", "timeout")


def test_an_option_beside_the_function_is_refused_as_well() -> None:
    flow: Any = Flow("f")
    assert refused(UnknownOption, lambda: flow.step(plain, retry=3)).option == "retry"  # wrong


def test_a_bound_of_a_wait_without_a_wait_is_refused() -> None:
    error = refused(InvalidArgument, lambda: Flow("f").step(wait_timeout=3)(plain))  # wrong
    assert (error.argument, error.value) == ("wait_timeout", 3)


@pytest.mark.parametrize("name", DECORATORS)
def test_every_option_is_described_where_help_finds_it(name: str) -> None:
    told = {line.split()[0] for line in lines_of(DECORATORS[name])}
    if name != "handler":
        told |= {line.split()[0] for line in lines_of(Flow.step)}
    assert set(OPTIONS[name]) <= told


def lines_of(function: Callable[..., Any]) -> list[str]:
    """The lines of a docstring that stand further in: those of a table."""
    lines = (function.__doc__ or "").expandtabs().splitlines()
    return [it for it in lines if it.startswith(" " * 12) and it.strip()]
