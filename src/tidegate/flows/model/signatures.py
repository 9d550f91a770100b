"""Signatures of step functions: read at declaration, compared when the flow is used."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Union

from tidegate.errors import (
    InvalidArgument,
    SourceLine,
    UnstorableType,
    UntypedFunction,
    WrongParameters,
)
from tidegate.flows.model.codecs import Codec

STREAMS = (Iterator, Iterable, Generator, list)
_UNIONS = (Union, UnionType)


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of a function after its context, and its result."""

    parameters: tuple[tuple[str, Any], ...]
    result: Any


def read_signature(
    flow: str, function: Callable[..., object], scope: Mapping[str, object], at: SourceLine
) -> Signature:
    """Read the types of a function; `scope` has the local names at its declaration."""
    name = getattr(function, "__name__", repr(function))
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        expected = "a plain function, which may call asyncio.run"
        raise InvalidArgument(at, "step", "function", name, expected)
    try:
        hints = typing.get_type_hints(function, localns=dict(scope))
    except Exception as error:  # whatever evaluating a user's annotation raises
        raise UntypedFunction(at, flow, name, f"{type(error).__name__}: {error}") from error
    names = [it.name for it in inspect.signature(function).parameters.values()]
    if not names:
        raise WrongParameters(at, flow, name, "nothing", "a context")
    missing = [it for it in [*names[1:], "return"] if it not in hints]
    if missing:
        reason = ", ".join("its result" if it == "return" else it for it in missing)
        raise UntypedFunction(at, flow, name, f"{reason} has no type")
    return Signature(tuple((it, hints[it]) for it in names[1:]), hints["return"])


def takes(function: Callable[..., object], number: int) -> bool:
    """Whether a function takes so many arguments; True if its signature is unknown."""
    try:
        inspect.signature(function).bind(*[None] * number)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def scope_of_caller(package: str) -> dict[str, object]:
    """The local names of the innermost caller outside of this package."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(package):
        frame = frame.f_back
    return dict(frame.f_locals) if frame is not None else {}


def item_of(stream: Any) -> Any | None:
    """The element type of an iterable type; None for other types."""
    if typing.get_origin(stream) not in STREAMS:
        return None
    arguments = typing.get_args(stream)
    if not arguments:
        return None
    return NoneType if arguments[0] is None else arguments[0]


def is_list(type_: Any) -> bool:
    """Whether this is a list type; other iterables are read once, page by page."""
    return typing.get_origin(type_) is list


def admits_none(type_: Any) -> bool:
    """Whether the type includes None."""
    return type_ in (Any, None, NoneType) or NoneType in _options(type_)


def fits(given: Any, wanted: Any) -> bool:
    """Whether every value of one type is a value of the other, as far as annotations show.

    >>> fits(int, int | None), fits(str, int), fits(bool, int), fits(int, float)
    (True, False, True, True)
    """
    if wanted is Any or given == wanted:
        return True
    if wanted is None:
        return given is NoneType
    options = _options(given)
    if len(options) > 1:
        return all(fits(it, wanted) for it in options)
    if len(_options(wanted)) > 1:
        return any(fits(given, it) for it in _options(wanted))
    if isinstance(given, type) and isinstance(wanted, type):
        return issubclass(given, wanted) or (given is int and wanted is float)
    return False


def shown(type_: Any) -> str:
    """A type as text."""
    return type_.__name__ if isinstance(type_, type) and not typing.get_args(type_) else str(type_)


def codec_for(flow: str, of: str, type_: Any, at: SourceLine) -> Codec:
    """The codec of a type; raises if JSON cannot represent it."""
    codec = Codec(of, type_)
    try:
        codec.check()
    except Exception as error:  # also whatever evaluating annotations inside of a type raises
        raise UnstorableType(at, flow, of, shown(type_), _last_line(error)) from error
    return codec


def _last_line(error: Exception) -> str:
    """The last sentence of an error of msgspec; the rest is advice for its own users."""
    return (str(error).splitlines() or [type(error).__name__])[-1]


def _options(type_: Any) -> tuple[Any, ...]:
    return typing.get_args(type_) if typing.get_origin(type_) in _UNIONS else (type_,)
