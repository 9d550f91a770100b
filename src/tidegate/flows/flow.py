"""Flows: where a declaration begins, and the register of all its steps.

    crawl = Flow("crawl")

    @crawl.generator
    def discover(context: Context, start: Start) -> Iterator[Url]: …

    @discover.handler(retries=3)
    def fetch(context: Context, url: Url) -> Page: …

    @crawl.reduce(discover)
    def summarise(context: Context, pages: Iterator[Page]) -> Summary: …

Declaring runs nothing. What belongs together is compared when the flow is first used, and every
mistake names the user's line.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    overload,
)

from tidegate.errors import DuplicateName, FlowInUse, InvalidArgument
from tidegate.flows import options as reading
from tidegate.flows.context import Context
from tidegate.flows.keys import ORDERED_TOLD, StateKey, has_order
from tidegate.flows.options import GeneratorOptions, HandlerOptions, MapOptions, Named, StepOptions
from tidegate.flows.signatures import codec_for, read_signature, scope_of_caller, shown
from tidegate.flows.steps import Generating, Handler, Step, StepKind
from tidegate.pipeline.names import Register, check_name
from tidegate.pipeline.source_line import user_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.errors import SourceLine
    from tidegate.flows.definition import Definition

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Item = TypeVar("Item")

_PACKAGE = str(Path(__file__).parents[1]) + os.sep


@dataclass(frozen=True)
class GeneratorStep(Step[P, R], Generic[P, R, Item]):
    """A step that yields its items."""

    generating: Generating = field(default_factory=Generating)
    declare_handler: Callable[..., Any] = field(default=lambda: None, repr=False, compare=False)

    @overload
    def handler(self, function: Callable[[Context, Item], T], /) -> Handler[[Context, Item], T]: ...
    @overload
    def handler(
        self, /, **options: Unpack[HandlerOptions]
    ) -> Callable[[Callable[[Context, Item], T]], Handler[[Context, Item], T]]: ...
    def handler(
        self,
        function: Callable[[Context, Item], T] | None = None,
        /,
        **options: Unpack[HandlerOptions],
    ) -> Any:
        """Declare what is done with each item: `(context, item) -> result`."""
        return self.declare_handler(self.name, function, dict(options))


class _Decorator(Protocol):
    def __call__(self, function: Callable[P, R], /) -> Step[P, R]: ...


class _GeneratorDecorator(Protocol):
    def __call__(
        self, function: Callable[P, Iterator[Item]], /
    ) -> GeneratorStep[P, Iterator[Item], Item]: ...


class Flow:
    """A declared flow.

    >>> flow = Flow("greetings")
    >>> @flow.step
    ... def greet(context: Context, name: str) -> str:
    ...     return f"hello {name}"
    >>> list(flow.definition.steps)
    ['greet']
    """

    def __init__(self, name: str) -> None:
        self.at = user_line()
        check_name("flow", name, self.at)
        self.name = name
        self.steps: Register[Step[..., Any]] = Register("step")
        self.handlers: dict[str, Handler[..., Any]] = {}
        self.keys: Register[StateKey[Any]] = Register("state key")
        self._is_in_use = False

    # ── what users declare ──

    def state(
        self, name: str, type_: type[T], *, monotonic: bool = False, external: bool = False
    ) -> StateKey[T]:
        """A key of the state. A monotonic one never goes back, an external one is set outside."""
        at = self._declaring(name)
        codec = codec_for(self.name, "state", f"the state {name!r}", type_, at)
        if monotonic and not has_order(type_):
            expected = f"False for {shown(type_)}: only {ORDERED_TOLD} have an order in PostgreSQL"
            raise InvalidArgument(at, "state key", "monotonic", monotonic, expected)
        key: StateKey[T] = StateKey(at, name, codec, monotonic, external)
        self.keys.declare(name, key, at)
        return key

    @overload
    def step(self, function: Callable[P, R], /) -> Step[P, R]: ...
    @overload
    def step(self, /, **options: Unpack[StepOptions]) -> _Decorator: ...
    def step(
        self, function: Callable[..., Any] | None = None, /, **options: Unpack[StepOptions]
    ) -> Any:
        """A function that is run once: `(context, *dependencies) -> result`."""
        return self._decorate(StepKind.PLAIN, function, dict(options))

    @overload
    def map_step(self, function: Callable[P, R], /) -> Step[P, R]: ...
    @overload
    def map_step(self, /, **options: Unpack[MapOptions]) -> _Decorator: ...
    def map_step(
        self, function: Callable[..., Any] | None = None, /, **options: Unpack[MapOptions]
    ) -> Any:
        """A function for each element of its first dependency: `(context, item, …) -> result`."""
        return self._decorate(StepKind.MAP, function, dict(options))

    @overload
    def generator(
        self, function: Callable[P, Iterator[Item]], /
    ) -> GeneratorStep[P, Iterator[Item], Item]: ...
    @overload
    def generator(self, /, **options: Unpack[GeneratorOptions]) -> _GeneratorDecorator: ...
    def generator(
        self, function: Callable[..., Any] | None = None, /, **options: Unpack[GeneratorOptions]
    ) -> Any:
        """A function that yields items: `(context, *dependencies) -> Iterator[Item]`.

        It is run again after a crash, and has to yield the same items in the same order up to
        those that it had yielded, unless they have keys; or begin behind the cursor that it saved.
        """
        return self._decorate(StepKind.GENERATOR, function, dict(options))

    def reduce(self, of: Named, /, **options: Unpack[StepOptions]) -> _Decorator:
        """A function over all results of a step with items: `(context, results) -> result`.

        Results come in the order of their items; as an `Iterator` they are read bit by bit.
        """
        given = {**options, "depends_on": of}
        decorator: _Decorator = self._decorate(StepKind.REDUCE, None, given)
        return decorator

    # ── using it ──

    @cached_property
    def definition(self) -> Definition:
        """The whole flow, compared with itself; from here on nothing can be added."""
        from tidegate.flows.definition import define

        found = define(self)
        self._is_in_use = True
        return found

    # ── how ──

    def _declaring(self, name: str) -> SourceLine:
        at = user_line()
        if self._is_in_use:
            raise FlowInUse(at, self.name, name)
        return at

    def _decorate(
        self, kind: StepKind, function: Callable[..., Any] | None, options: dict[str, Any]
    ) -> Any:
        if function is not None:
            return self._declare(kind, function, options)
        return lambda function: self._declare(kind, function, options)

    def _declare(
        self, kind: StepKind, function: Callable[..., Any], options: Mapping[str, Any]
    ) -> Step[..., Any]:
        name = options.get("name", getattr(function, "__name__", ""))
        at = self._declaring(name)
        signature = read_signature(self.name, function, scope_of_caller(_PACKAGE), at)
        depends_on = reading.names("depends_on", options.get("depends_on", ()), at)
        trying, gate = reading.trying(options, at), reading.gate(options, at)
        on_fail = reading.on_fail(options, at)
        writes = reading.names("writes", options.get("writes", ()), at)
        reads = reading.reads(options, at)
        what = (at, name, kind, function, signature, depends_on, trying, gate)
        how = (on_fail, writes, reads)
        if kind is not StepKind.GENERATOR:
            return self.steps.declare(name, Step(*what, *how), at)
        generating = reading.generating(options, at)
        step: Step[..., Any] = GeneratorStep(*what, *how, generating, self._decorate_handler)
        return self.steps.declare(name, step, at)

    def _decorate_handler(
        self, of: str, function: Callable[..., Any] | None, options: dict[str, Any]
    ) -> Any:
        if function is not None:
            return self._declare_handler(of, function, options)
        return lambda function: self._declare_handler(of, function, options)

    def _declare_handler(
        self, of: str, function: Callable[..., Any], options: Mapping[str, Any]
    ) -> Handler[..., Any]:
        name = options.get("name", getattr(function, "__name__", ""))
        at = self._declaring(name)
        if of in self.handlers:
            raise DuplicateName(at, "handler of generator", of, self.handlers[of].at)
        signature = read_signature(self.name, function, scope_of_caller(_PACKAGE), at)
        handler = Handler(at, name, function, signature, reading.trying(options, at))
        self.handlers[of] = handler
        return handler

    def __repr__(self) -> str:
        return f"Flow({self.name!r})"
