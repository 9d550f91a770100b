"""Gates: declared conditions on a flow's state, with known keys and progress.

    reached(consumer_offset, target_watermark) & is_set(backfill_done)

A gate is a predicate like any function of the state, for `wait_for=` and
`context.wait_for_state(…)`. Unlike a function it knows which keys it reads, so that `reads=` may be
omitted beside `wait_for=`, and, while it does not hold, what is missing and since when.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from tidegate.errors import InvalidArgument, InvalidFlowValue
from tidegate.flows.model.keys import FlowStateReader, StateKey, StateValue, number_in
from tidegate.flows.model.signatures import fits, shown
from tidegate.pipeline.source_line import user_line

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison of a gate, as stored with a wait."""

    key: str
    target_key: str | None = None
    """The key that `key` has to reach."""
    target: str | None = None
    """The value that `key` has to reach, as JSON."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The progress of one condition. Values are JSON; None: never written."""

    condition: Condition
    value: str | None
    target: str | None = None
    writer: str = ""
    age: float | None = None
    """Seconds since the value was written."""

    @property
    def behind(self) -> int | float | None:
        """How much is missing; None where that is no number."""
        value, target = number_in(self.value), number_in(self.target)
        return None if value is None or target is None else max(target - value, 0)

    @property
    def distance(self) -> str:
        """How far it is, for a sentence."""
        return f"{self.condition.key}{self._value()}{self._target()}"

    def __str__(self) -> str:
        return f"{self.distance}{self._stillness()}"

    def _value(self) -> str:
        return " was never written" if self.value is None else f" is {readable(self.value)}"

    def _target(self) -> str:
        name = self.condition.target_key
        if name is None and self.condition.target is None:
            return ""
        if self.target is None:
            return f", and {name} was never written"
        whose = f" ({name})" if name else ""
        if self.behind is not None:
            return f" of {readable(self.target)}{whose}: {readable_number(self.behind)} behind"
        return f", and has to reach {readable(self.target)}{whose}"

    def _stillness(self) -> str:
        if self.value is None or self.age is None:
            return ""
        return f", last written by {self.writer or 'unknown'} {self.age:,.1f} s ago"


@runtime_checkable
class StateGate(Protocol):
    """A predicate that says what it looks at."""

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Everything that has to hold."""
        ...

    def __call__(self, state: FlowStateReader) -> bool:
        """Whether it holds."""
        ...

    def missing(self, state: FlowStateReader) -> Iterator[Condition]:
        """What does not hold."""
        ...


class _Composable:
    """What all gates can do."""

    __slots__ = ()

    def __and__(self, other: StateGate) -> AllOf:
        """Holds when both hold."""
        return all_of(self, other)  # type: ignore[arg-type]  # every subclass is a gate


@dataclass(frozen=True, slots=True)
class IsSet(_Composable):
    """A key has a value that is neither false nor null."""

    key: StateKey[Any]

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Its only condition."""
        return (Condition(self.key.name),)

    def __call__(self, state: FlowStateReader) -> bool:
        value = state.get(self.key)
        return value is not None and value is not False

    def missing(self, state: FlowStateReader) -> Iterator[Condition]:
        """Its condition, unless it holds."""
        return iter(() if self(state) else self.conditions)


@dataclass(frozen=True, slots=True)
class Reached(_Composable):
    """A key is at least another key, or a value."""

    key: StateKey[Any]
    target: StateKey[Any] | object

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Its only condition."""
        if isinstance(self.target, StateKey):
            return (Condition(self.key.name, self.target.name),)
        return (Condition(self.key.name, None, self.key.codec.encode(self.target)),)

    def __call__(self, state: FlowStateReader) -> bool:
        value: Any = state.get(self.key)
        is_key = isinstance(self.target, StateKey)
        target: Any = state.get(self.target) if is_key else self.target  # type: ignore[arg-type]
        return value is not None and target is not None and bool(value >= target)

    def missing(self, state: FlowStateReader) -> Iterator[Condition]:
        """Its condition, unless it holds."""
        return iter(() if self(state) else self.conditions)


@dataclass(frozen=True, slots=True)
class AllOf(_Composable):
    """All of several gates."""

    gates: tuple[StateGate, ...]

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions of all gates."""
        return tuple(dict.fromkeys(it for gate in self.gates for it in gate.conditions))

    def __call__(self, state: FlowStateReader) -> bool:
        return all(gate(state) for gate in self.gates)

    def missing(self, state: FlowStateReader) -> Iterator[Condition]:
        """The conditions that do not hold."""
        for gate in self.gates:
            yield from gate.missing(state)


def is_set(key: StateKey[Any]) -> IsSet:
    """Holds when the key has a value other than false and null."""
    _check_key("is_set", "key", key)
    return IsSet(key)


def reached(offset: StateKey[T], watermark: StateKey[T] | T) -> Reached:
    """Holds when a key is at least another key, or a fixed value."""
    _check_key("reached", "offset", offset)
    given = offset.codec.type
    if not isinstance(watermark, StateKey):
        _check_value(offset, watermark)
    elif not (fits(given, watermark.codec.type) or fits(watermark.codec.type, given)):
        expected = f"a key of {shown(given)}, as {offset.name!r} is"
        raise InvalidArgument(user_line(), "reached", "watermark", watermark, expected)
    return Reached(offset, watermark)


def all_of(*gates: StateGate) -> AllOf:
    """Holds when every gate holds."""
    given: tuple[object, ...] = gates
    for it in given:
        if not isinstance(it, StateGate):
            expected = "gates: is_set(…), reached(…) or all_of(…)"
            raise InvalidArgument(user_line(), "all_of", "gates", it, expected)
    return AllOf(tuple(it for gate in gates for it in _parts(gate)))


def keys_of(conditions: tuple[Condition, ...]) -> tuple[str, ...]:
    """The keys that these conditions read."""
    names = (name for it in conditions for name in (it.key, it.target_key) if name is not None)
    return tuple(dict.fromkeys(names))


def standing(condition: Condition, values: Mapping[str, StateValue]) -> Standing:
    """The progress of a condition, by the values of the state."""
    found = values.get(condition.key, _ABSENT)
    of_key = values.get(condition.target_key or "", _ABSENT)
    target = condition.target if condition.target_key is None else of_key.json
    return Standing(condition, found.json, target, found.writer, found.age)


def readable(text: str) -> str:
    """A JSON value as text.

    >>> readable("4100"), readable('"2026-03-01"'), readable("true")
    ('4,100', '"2026-03-01"', 'true')
    """
    number = number_in(text)
    return text if number is None else readable_number(number)


def readable_number(number: float) -> str:
    """A number as text, with at most three decimals.

    >>> readable_number(4100), readable_number(0.30000000000000004)
    ('4,100', '0.3')
    """
    return f"{number:,}" if isinstance(number, int) else f"{number:,.3f}".rstrip("0").rstrip(".")


def _parts(gate: StateGate) -> tuple[StateGate, ...]:
    return gate.gates if isinstance(gate, AllOf) else (gate,)


def _check_key(operator: str, argument: str, key: object) -> None:
    if not isinstance(key, StateKey):
        expected = "a key, as flow.state(…) returns it"
        raise InvalidArgument(user_line(), operator, argument, key, expected)


def _check_value(offset: StateKey[Any], value: object) -> None:
    try:
        offset.codec.encode(value)
    except InvalidFlowValue as error:
        expected = f"a key, or a value of {shown(offset.codec.type)}"
        raise InvalidArgument(user_line(), "reached", "watermark", value, expected) from error


_ABSENT = StateValue(None)
