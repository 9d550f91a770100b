"""The checked definition of a flow, for the database and for workers.

define(flow) ──▶ Definition ──▶ `as_rows`, with which a run is started
                           └──▶ a `StepDefinition` per step, by which a worker executes it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidegate.errors import (
    CyclicFlow,
    GateNeverOpens,
    GeneratorWithoutHandler,
    InvalidArgument,
    ItemsNotYielded,
    NotAList,
    StateNeverWritten,
    TypesDiffer,
    UnknownFlowStep,
    UnknownStateKey,
    WrongParameters,
    counted,
    listed,
)
from tidegate.flows.model.cycles import Waits, find_cycle
from tidegate.flows.model.keys import StateKey
from tidegate.flows.model.options import keys_of_gate
from tidegate.flows.model.policies import Tolerate
from tidegate.flows.model.signatures import (
    admits_none,
    codec_for,
    fits,
    is_list,
    item_of,
    shown,
    takes,
)
from tidegate.flows.model.steps import Handler, Step, StepKind
from tidegate.pipeline.graph import CycleFound, upstream_first

if TYPE_CHECKING:
    from tidegate.flows.model.codecs import Codec
    from tidegate.flows.model.flow import Flow

ITEMS = frozenset({StepKind.MAP, StepKind.GENERATOR})
"""Kinds of steps with one result per item."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a function: the result of a step, or the input of the flow (None)."""

    source: str | None
    codec: Codec
    """Of the value, or of each result if the source has items."""
    is_many: bool = False
    """Whether the source has items, with a result each."""
    is_list: bool = False
    """Whether the parameter is a list of them, not an iterator."""


@dataclass(frozen=True, slots=True)
class StepDefinition:
    """A step as a worker executes it."""

    step: Step[..., Any]
    takes: tuple[Parameter, ...]
    gives: Codec
    """The codec of its result, or of the result of each item."""
    item: Codec | None = None
    handler: Handler[..., Any] | None = None
    """The handler of a generator's items."""
    signal: Codec | None = None


@dataclass(frozen=True)
class Definition:
    """A checked flow."""

    name: str
    steps: Mapping[str, StepDefinition]
    """In topological order."""
    keys: Mapping[str, StateKey[Any]]
    input: Codec

    def as_rows(self) -> dict[str, object]:
        """The rows of steps and keys that a run is stored with."""
        return {
            "steps": [_step_row(number, part) for number, part in enumerate(self.steps.values())],
            "keys": [self._key_row(key) for key in self.keys.values()],
        }

    def _key_row(self, key: StateKey[Any]) -> dict[str, object]:
        writers = [name for name, part in self.steps.items() if key.name in part.step.writes]
        return {
            "name": key.name,
            "monotonic": key.is_monotonic,
            "external": key.is_external,
            "writers": writers,
            "type": key.codec.schema,
        }


def _step_row(number: int, part: StepDefinition) -> dict[str, object]:
    step, policy = part.step, part.step.on_fail
    tolerate = policy if isinstance(policy, Tolerate) else Tolerate()
    optional = [it.source for it in part.takes if it.source and admits_none(it.codec.type)]
    items = part.handler.retry_options if part.handler else step.retry_options
    return {
        "name": step.name,
        "number": number,
        "kind": step.kind.value,
        "depends_on": list(step.depends_on),
        "optional": optional,
        "needs_signal": part.signal is not None,
        "retries": step.retry_options.retries,
        "item_retries": items.retries,
        "tolerated_count": tolerate.count,
        "tolerated_share": tolerate.share,
        "signal_type": part.signal.schema if part.signal is not None else None,
    }


def define(flow: Flow) -> Definition:
    """Check a flow; raises a `DeclarationError` at the user's line."""
    ordered = _in_order(flow)
    parts: dict[str, StepDefinition] = {}
    for step in ordered:
        parts[step.name] = _part(flow, step, parts)
    _check_keys(flow)
    _check_gates(flow, ordered)
    return Definition(flow.name, parts, dict(flow.keys), _input(flow, parts))


def _in_order(flow: Flow) -> list[Step[..., Any]]:
    for step in flow.steps.values():
        for name in step.depends_on:
            if name not in flow.steps:
                raise UnknownFlowStep(step.at, flow.name, name, listed(list(flow.steps)))
    try:
        names = upstream_first(list(flow.steps), lambda name: flow.steps[name].depends_on)
    except CycleFound as found:
        first = flow.steps[found.nodes[0]]
        raise CyclicFlow(first.at, flow.name, " → ".join(found.nodes)) from None
    return [flow.steps[name] for name in names]


def _part(flow: Flow, step: Step[..., Any], parts: Mapping[str, StepDefinition]) -> StepDefinition:
    sources: list[str | None] = [*step.depends_on]
    wanted = list(step.signature.parameters)
    signal = None
    if step.gate.signal is not None:
        signal = _signal(flow, step, wanted)
    if not sources and wanted:
        sources = [None]
    if len(wanted) != len(sources):
        given = listed([*map(str, step.depends_on)]) if sources else "nothing"
        raise WrongParameters(
            step.at, flow.name, step.name, listed([name for name, _ in wanted]), given
        )
    checker = _StepChecker(flow, step, parts)
    taken = tuple(
        checker.parameter(source, type_, is_items=at == 0 and step.kind is StepKind.MAP)
        for at, (source, (_, type_)) in enumerate(zip(sources, wanted, strict=True))
    )
    return checker.definition(taken, signal)


def _signal(flow: Flow, step: Step[..., Any], wanted: list[tuple[str, Any]]) -> Codec:
    type_ = step.gate.signal
    if not wanted or not fits(type_, wanted[-1][1]):
        found = shown(wanted[-1][1]) if wanted else "nothing"
        raise TypesDiffer(step.at, flow.name, step.name, found, "its signal", shown(type_))
    wanted.pop()
    return codec_for(flow.name, f"the signal of step {step.name!r}", type_, step.at)


class _StepChecker:
    """Checks one step against those that it depends on."""

    def __init__(
        self, flow: Flow, step: Step[..., Any], parts: Mapping[str, StepDefinition]
    ) -> None:
        self._flow = flow
        self._step = step
        self._parts = parts

    def parameter(self, source: str | None, wanted: Any, *, is_items: bool) -> Parameter:
        """The source of a parameter; of a map step, the first parameter is one element."""
        if source is None:
            codec = self._codec("the input of the flow", list[wanted] if is_items else wanted)
            return Parameter(None, codec)
        given = self._parts[source]
        if given.step.kind in ITEMS:
            return self._of_many(source, wanted, is_items=is_items)
        if is_items:
            element = self._element(source, wanted, given.gives.type)
            self._compare(wanted, source, element, f"a list of {shown(element)}")
            return Parameter(source, given.gives)
        self._compare(wanted, source, given.gives.type, shown(given.gives.type))
        return Parameter(source, self._value(source, wanted))

    def _element(self, source: str, wanted: Any, whole: Any) -> Any:
        element = item_of(whole) if is_list(whole) else None
        if element is None:
            raise NotAList(
                self._step.at, self._flow.name, self._step.name, shown(wanted), source, shown(whole)
            )
        return element

    def _of_many(self, source: str, wanted: Any, *, is_items: bool) -> Parameter:
        given = self._parts[source].gives
        inside = wanted if is_items else item_of(wanted)
        if inside is None or not fits(given.type, inside):
            raise self._differ(wanted, source, f"many results of {shown(given.type)}")
        return Parameter(source, self._value(source, inside), is_many=True, is_list=is_list(wanted))

    def _compare(self, wanted: Any, source: str, given: Any, text: str) -> None:
        if not fits(given, wanted):
            raise self._differ(wanted, source, text)

    def _differ(self, wanted: Any, source: str, given: str) -> TypesDiffer:
        at, flow, step = self._step.at, self._flow.name, self._step.name
        return TypesDiffer(at, flow, step, shown(wanted), f"step {source!r}", given)

    def definition(self, taken: tuple[Parameter, ...], signal: Codec | None) -> StepDefinition:
        """The checked step."""
        step = self._step
        self._check_gate(len(taken) + (signal is not None))
        if step.kind is StepKind.GENERATOR:
            return self._generator(taken, signal)
        item = None
        if step.kind is StepKind.MAP:
            if not taken:
                raise WrongParameters(step.at, self._flow.name, step.name, "nothing", "an item")
            item = self._codec(f"an item of step {step.name!r}", step.signature.parameters[0][1])
        if step.kind is StepKind.REDUCE and not taken[0].is_many:
            expected = "a step with items: a map step or a generator"
            raise InvalidArgument(step.at, "reduce", "of", taken[0].source, expected)
        gives = self._codec(f"the result of step {step.name!r}", step.signature.result)
        return StepDefinition(step, taken, gives, item, None, signal)

    def _generator(self, takes: tuple[Parameter, ...], signal: Codec | None) -> StepDefinition:
        step, flow = self._step, self._flow
        item = item_of(step.signature.result)
        if item is None or is_list(step.signature.result):
            raise ItemsNotYielded(step.at, flow.name, step.name, shown(step.signature.result))
        handler = flow.handlers.get(step.name)
        if handler is None:
            raise GeneratorWithoutHandler(step.at, flow.name, step.name)
        parameters = handler.signature.parameters
        if len(parameters) != 1:
            found = listed([name for name, _ in parameters])
            raise WrongParameters(handler.at, flow.name, handler.name, found, "an item")
        if not fits(item, parameters[0][1]):
            raise TypesDiffer(
                handler.at, flow.name, handler.name, shown(parameters[0][1]),
                f"generator {step.name!r}", shown(item),
            )  # fmt: skip
        gives = self._codec(f"the result of {handler.name!r}", handler.signature.result)
        return StepDefinition(
            step, takes, gives, self._codec(f"an item of {step.name!r}", item), handler, signal
        )

    def _check_gate(self, given: int) -> None:
        gate, at = self._step.gate, self._step.at
        if gate.condition is not None and not takes(gate.condition, given):
            expected = f"a function of {counted(given, 'value')}, the parameters of the step"
            raise InvalidArgument(at, "step", "condition", gate.condition, expected)
        if gate.wait_for is not None and not takes(gate.wait_for, 1):
            raise InvalidArgument(at, "step", "wait_for", gate.wait_for, "a function of the state")

    def _value(self, source: str, type_: Any) -> Codec:
        return self._codec(f"what step {source!r} gives", type_)

    def _codec(self, of: str, type_: Any) -> Codec:
        return codec_for(self._flow.name, of, type_, self._step.at)


def _check_keys(flow: Flow) -> None:
    written = {key for step in flow.steps.values() for key in step.writes}
    for step in flow.steps.values():
        for key in (*step.writes, *step.reads):
            if key not in flow.keys:
                known = listed(list(flow.keys)) if flow.keys else "none"
                raise UnknownStateKey(step.at, flow.name, step.name, key, known)
        for key in step.reads:
            if key not in written and not flow.keys[key].is_external:
                raise StateNeverWritten(step.at, flow.name, step.name, key)
        if step.gate.wait_for is not None and not step.reads:
            raise InvalidArgument(step.at, "step", "reads", (), "the keys that wait_for reads")


def _check_gates(flow: Flow, ordered: list[Step[..., Any]]) -> None:
    found = find_cycle({step.name: _waits(flow, step) for step in ordered})
    if found is not None:
        first = flow.steps[found.steps[0]]
        path = " → ".join((*found.steps, first.name))
        raise GateNeverOpens(first.at, flow.name, first.name, found.key, path)


def _waits(flow: Flow, step: Step[..., Any]) -> Waits:
    needs = (it for it in keys_of_gate(step.gate.wait_for) if not flow.keys[it].is_external)
    return Waits(step.depends_on, tuple(needs), step.writes, step.gate.condition is not None)


def _input(flow: Flow, parts: Mapping[str, StepDefinition]) -> Codec:
    """The codec of the flow's input; all steps that take it have to agree on its type."""
    first: tuple[StepDefinition, Parameter] | None = None
    for part in parts.values():
        for taken in part.takes:
            if taken.source is not None:
                continue
            if first is not None and first[1].codec.type != taken.codec.type:
                raise TypesDiffer(
                    part.step.at, flow.name, part.step.name, shown(taken.codec.type),
                    f"the input that step {first[0].step.name!r} takes",
                    shown(first[1].codec.type),
                )  # fmt: skip
            first = first or (part, taken)
    if first is None:
        return codec_for(flow.name, "the input of the flow", None, flow.at)
    return first[1].codec
