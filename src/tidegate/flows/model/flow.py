"""The declaration of a flow, and the register of its steps.

    crawl = Flow("crawl")

    @crawl.generator
    def discover(context: Context, start: Start) -> Iterator[Url]: …

    @discover.handler(retries=3)
    def fetch(context: Context, url: Url) -> Page: …

    @crawl.reduce(discover)
    def summarise(context: Context, pages: Iterator[Page]) -> Summary: …

A declaration runs nothing. Types and dependencies are checked when the flow is first used; every
error names the user's line.
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
from tidegate.flows.model.keys import ORDERED_NAMES, StateKey, has_order
from tidegate.flows.model.options import (
    GeneratorOptions,
    HandlerOptions,
    MapOptions,
    Named,
    ReduceOptions,
    StepOptions,
)
from tidegate.flows.model.signatures import codec_for, read_signature, scope_of_caller, shown
from tidegate.flows.model.steps import Handler, SpawnOptions, Step, StepKind
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
    """A step that yields items."""

    generating: SpawnOptions = field(default_factory=SpawnOptions)
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
        """Declare the function of each item: `(context, item) -> result`.

        A generator has one handler. Its options apply to each item:

            name         by default the name of the function
            retries      further attempts after a failed one; 0 by default
            backoff      `Backoff(…)`: the pauses before further attempts
            timeout      seconds per attempt; by default no limit
            concurrency  how many tasks one worker runs at once; by default its threads

        Its state keys, `writes` and `reads`, are declared on the generator.
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

    # ── declarations ──

    def state(
        self, name: str, type_: type[T], *, monotonic: bool = False, external: bool = False
    ) -> StateKey[T]:
        """Declare a state key. A monotonic key never decreases, an external one is set outside."""
        at = self._declaring(name)
        codec = codec_for(self.name, f"the state {name!r} of flow {self.name!r}", type_, at)
        if monotonic and not has_order(type_):
            expected = f"False for {shown(type_)}: only {ORDERED_NAMES} have an order in PostgreSQL"
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
        """Declare a function that runs once: `(context, *dependencies) -> result`.

        Without dependencies it takes the input of the flow, or nothing. Options:

            name          by default the name of the function
            depends_on    steps, or their names, that end before; it takes their results
            signal        the type of a signal to wait for, its last parameter
            condition     a function of its parameters; if false, the step is skipped
            wait_for      a gate, or a function of the state; the step starts when it holds
            wait_timeout  seconds after which a step that waits at its gate fails
            writes        state keys that it may write
            reads         keys that it may read or wait for; those of its gate are implied
            retries       further attempts after a failed one; 0 by default
            backoff       `Backoff(…)`: the pauses before further attempts
            timeout       seconds per attempt; by default no limit
            concurrency   how many tasks one worker runs at once; by default its threads
            resumable     whether another worker can resume it when its worker stops

        A step with `signal` takes its dependencies first and the signal last. One that depends on
        no step takes `(context, signal)`, or `(context, input, signal)`.

        `condition` is called with the same values in the same order, without the context, when all
        dependencies have ended and the signal has arrived; `wait_for` is evaluated after it.

        A step that depends on a skipped one is skipped as well, unless the parameter for it takes
        None, as `int | None` does: it is None then. If the skipped one has items, their type has
        to take None, as `Iterator[int | None]` does: the iterator is empty then.
        """
        return self._decorate(StepKind.PLAIN, function, dict(options))

    @overload
    def map_step(self, function: Callable[P, R], /) -> Step[P, R]: ...
    @overload
    def map_step(self, /, **options: Unpack[MapOptions]) -> _Decorator: ...
    def map_step(
        self, function: Callable[..., Any] | None = None, /, **options: Unpack[MapOptions]
    ) -> Any:
        """Declare a function of each element of a dependency: `(context, item, …) -> result`.

        The first dependency returns a list, or has items, whose results are the elements. Without
        dependencies it takes each element of the flow's input. Options are those of `step`, and:

            on_fail  how many items may fail: `FailAtFirst()`, which is none, or `Tolerate(…)`

        Attempts, `timeout` and `concurrency` apply to each item. `condition` and `wait_for` are
        evaluated once, before there are items; `condition` takes the whole first dependency.
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
        """Declare a function that yields items: `(context, *dependencies) -> Iterator[Item]`.

        It runs again after a failure. It has to yield the same items in the same order as before,
        unless they have keys, or start behind the cursor that it saved.

        `.handler` declares the function of each item. Options are those of `step`, and:

            on_fail        how many items may fail: `FailAtFirst()`, which is none, or `Tolerate(…)`
            batch          items that are stored together; 100 by default
            flush_every    seconds after which a partial batch is stored; 0.2 by default
            max_in_flight  items in flight at which it waits; 10,000 by default
            key            a function that returns an item's identifier; by default its position

        Attempts and `timeout` apply to the generator itself; its handler has its own.
        """
        return self._decorate(StepKind.GENERATOR, function, dict(options))

    def reduce(self, of: Named, /, **options: Unpack[ReduceOptions]) -> _Decorator:
        """Declare a function of all results of a step with items: `(context, results) -> result`.

        Results are in the order of their items; as an `Iterator` they are read page by page.
        Options are those of `step`, without `depends_on`: it depends on that step alone.
        """
        decorator: _Decorator = self._decorate(StepKind.REDUCE, None, dict(options), of)
        return decorator

    # ── definition ──

    @cached_property
    def definition(self) -> Definition:
        """The checked flow; after the first use nothing can be declared."""
        from tidegate.flows.model.definition import define

        found = define(self)
        self._is_in_use = True
        return found

    # ── helpers ──

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
        retry_options, gate = reading.retry_options(options, at), reading.gate(options, at)
        on_fail = reading.on_fail(options, at)
        what = (at, name, kind, function, signature, depends_on, retry_options, gate)
        how = (on_fail, *self._state_of(name, options, at))
        if kind is not StepKind.GENERATOR:
            return self.steps.declare(name, Step(*what, *how), at)
        generating = reading.generating(options, at)
        step: Step[..., Any] = GeneratorStep(*what, *how, generating, self._decorate_handler)
        return self.steps.declare(name, step, at)

    def _state_of(
        self, step: str, options: Mapping[str, Any], at: SourceLine
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of the keys that a step writes and reads."""
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
        handler = Handler(at, name, function, signature, reading.retry_options(options, at))
        self.handlers[of] = handler
        return handler

    def __repr__(self) -> str:
        return f"Flow({self.name!r})"
