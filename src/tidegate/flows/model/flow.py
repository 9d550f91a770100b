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

from tidegate.errors import FlowInUse, ForeignStateKey, InvalidArgument, SecondHandler
from tidegate.flows.model import options as reading
from tidegate.flows.model.context import Context
from tidegate.flows.model.keys import ORDERED_TOLD, StateKey, has_order
from tidegate.flows.model.options import (
    GeneratorOptions,
    HandlerOptions,
    MapOptions,
    Named,
    ReduceOptions,
    StepOptions,
)
from tidegate.flows.model.signatures import codec_for, read_signature, scope_of_caller, shown
from tidegate.flows.model.steps import Generating, Handler, Step, StepKind
from tidegate.pipeline.names import Register, check_name
from tidegate.pipeline.source_line import user_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.errors import SourceLine
    from tidegate.flows.model.definition import Definition

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Item = TypeVar("Item")

_PACKAGE = str(Path(__file__).parents[2]) + os.sep
_DECORATORS = {
    StepKind.PLAIN: "step",
    StepKind.MAP: "map_step",
    StepKind.GENERATOR: "generator",
    StepKind.REDUCE: "reduce",
}


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
        """Declare what is done with each item: `(context, item) -> result`.

        A generator has one handler. Its options are for each item:

            name         by default that of the function
            retries      further attempts after one that failed; 0 by default
            backoff      `Backoff(…)`: the pauses before further attempts
            timeout      seconds that one attempt may take; by default, any
            concurrency  how many one worker runs at once; by default, as many as it has threads

        What it does with the state, `writes` and `reads`, is declared on the generator.
        """
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
        codec = codec_for(self.name, f"the state {name!r} of flow {self.name!r}", type_, at)
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
        """A function that is run once: `(context, *dependencies) -> result`.

        One that depends on no step takes the input of the flow, or nothing. Options:

            name          by default that of the function
            depends_on    steps, or their names, that end before; it takes what they give
            signal        the type of a signal to wait for, which it takes as its last parameter
            condition     a function of what the step takes; where it is false, the step is skipped
            wait_for      a gate, or a function of the state; the step begins when it holds
            wait_timeout  seconds after which a step that still waits so fails; by default, never
            writes        keys of the state that it may write
            reads         keys that it may read or wait for; those of a gate need not be named
            retries       further attempts after one that failed; 0 by default
            backoff       `Backoff(…)`: the pauses before further attempts
            timeout       seconds that one attempt may take; by default, any
            concurrency   how many one worker runs at once; by default, as many as it has threads
            resumable     whether it goes on where it was, so that a worker may stop under it

        A step with `signal` takes its dependencies first and the signal last. One that depends on
        no step takes `(context, signal)`, or `(context, input, signal)`.

        `condition` is called with the same values in the same order, without the context, when all
        dependencies have ended and the signal is there; `wait_for` is asked after it.

        A step that depends on a skipped one is skipped as well, unless the parameter for it takes
        None, as `int | None` does: it is given None then. Where the skipped one has items, their
        type has to take None, as `Iterator[int | None]` does: there are none of them then.
        """
        return self._decorate(StepKind.PLAIN, function, dict(options))

    @overload
    def map_step(self, function: Callable[P, R], /) -> Step[P, R]: ...
    @overload
    def map_step(self, /, **options: Unpack[MapOptions]) -> _Decorator: ...
    def map_step(
        self, function: Callable[..., Any] | None = None, /, **options: Unpack[MapOptions]
    ) -> Any:
        """A function for each element of its first dependency: `(context, item, …) -> result`.

        That gives a list, or is a step with items, whose results are the elements. One that depends
        on no step takes each element of the flow's input. Options are those of `step`, and:

            on_fail  how many items may fail: `FailAtFirst()`, which is none, or `Tolerate(…)`

        Attempts, `timeout` and `concurrency` are those of each item. `condition` and `wait_for` are
        asked once, before there are items; `condition` is given all of the first dependency.
        """
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

        What is done with each item is declared with `.handler`. Options are those of `step`, and:

            on_fail        how many items may fail: `FailAtFirst()`, which is none, or `Tolerate(…)`
            batch          items that are written at once; 100 by default
            flush_every    seconds after which fewer are written all the same; 0.2 by default
            max_in_flight  items not done yet, at which it waits; 10,000 by default
            key            a function of an item that identifies it; by default its position does

        Attempts and `timeout` are those of the generator itself; its handler has its own.
        """
        return self._decorate(StepKind.GENERATOR, function, dict(options))

    def reduce(self, of: Named, /, **options: Unpack[ReduceOptions]) -> _Decorator:
        """A function over all results of a step with items: `(context, results) -> result`.

        Results come in the order of their items; as an `Iterator` they are read bit by bit.
        Options are those of `step`, without `depends_on`: it depends on that step alone.
        """
        decorator: _Decorator = self._decorate(StepKind.REDUCE, None, dict(options), of)
        return decorator

    # ── using it ──

    @cached_property
    def definition(self) -> Definition:
        """The whole flow, compared with itself; from here on nothing can be added."""
        from tidegate.flows.model.definition import define

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
        self,
        kind: StepKind,
        function: Callable[..., Any] | None,
        options: dict[str, Any],
        of: Named | None = None,
    ) -> Any:
        reading.check_known(_DECORATORS[kind], options, user_line())
        given = options if of is None else {**options, "depends_on": of}
        if function is not None:
            return self._declare(kind, function, given)
        return lambda function: self._declare(kind, function, given)

    def _declare(
        self, kind: StepKind, function: Callable[..., Any], options: Mapping[str, Any]
    ) -> Step[..., Any]:
        name = options.get("name", getattr(function, "__name__", ""))
        at = self._declaring(name)
        signature = read_signature(self.name, function, scope_of_caller(_PACKAGE), at)
        depends_on = reading.names("depends_on", options.get("depends_on", ()), at)
        trying, gate = reading.trying(options, at), reading.gate(options, at)
        on_fail = reading.on_fail(options, at)
        what = (at, name, kind, function, signature, depends_on, trying, gate)
        how = (on_fail, *self._state_of(name, options, at))
        if kind is not StepKind.GENERATOR:
            return self.steps.declare(name, Step(*what, *how), at)
        generating = reading.generating(options, at)
        step: Step[..., Any] = GeneratorStep(*what, *how, generating, self._decorate_handler)
        return self.steps.declare(name, step, at)

    def _state_of(
        self, step: str, options: Mapping[str, Any], at: SourceLine
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of the keys that a step writes, and of those that it reads."""
        writes, reads = (reading.several(options.get(it, ())) for it in ("writes", "reads"))
        gate = options.get("wait_for")
        for key in (*writes, *reads, *reading.keys_in_gate(gate)):
            if isinstance(key, StateKey) and self.keys.get(key.name) is not key:
                raise ForeignStateKey(at, self.name, step, key.name, key.codec.of, key.at)
        named = (*reading.names("reads", reads, at), *reading.keys_of_gate(gate))
        return reading.names("writes", writes, at), tuple(dict.fromkeys(named))

    def _decorate_handler(
        self, of: str, function: Callable[..., Any] | None, options: dict[str, Any]
    ) -> Any:
        reading.check_known("handler", options, user_line())
        if function is not None:
            return self._declare_handler(of, function, options)
        return lambda function: self._declare_handler(of, function, options)

    def _declare_handler(
        self, of: str, function: Callable[..., Any], options: Mapping[str, Any]
    ) -> Handler[..., Any]:
        name = options.get("name", getattr(function, "__name__", ""))
        at = self._declaring(name)
        if of in self.handlers:
            raise SecondHandler(at, self.name, of, self.handlers[of].at)
        signature = read_signature(self.name, function, scope_of_caller(_PACKAGE), at)
        handler = Handler(at, name, function, signature, reading.trying(options, at))
        self.handlers[of] = handler
        return handler

    def __repr__(self) -> str:
        return f"Flow({self.name!r})"
