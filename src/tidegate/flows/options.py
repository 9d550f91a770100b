"""The options of decorators: their names and types, and what is possible at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from tidegate.errors import InvalidArgument
from tidegate.flows.gates import StateGate, keys_of
from tidegate.flows.keys import StateKey
from tidegate.flows.policies import FAIL_AT_FIRST, Backoff, FailAtFirst, FailurePolicy, Tolerate
from tidegate.flows.steps import Gate, Generating, StatePredicate, Step, Trying

if TYPE_CHECKING:
    from tidegate.errors import SourceLine

Named = Step[..., Any] | str
Key = StateKey[Any] | str


class HandlerOptions(TypedDict, total=False):
    """Of anything that is run."""

    name: str
    retries: int
    backoff: Backoff
    timeout: float
    concurrency: int


class StepOptions(HandlerOptions, total=False):
    """Of a step."""

    depends_on: Named | Iterable[Named]
    signal: Any
    condition: Callable[..., bool]
    wait_for: StatePredicate
    wait_timeout: float
    writes: Key | Iterable[Key]
    reads: Key | Iterable[Key]
    resumable: bool


class MapOptions(StepOptions, total=False):
    """Of a step with items."""

    on_fail: FailurePolicy


class GeneratorOptions(MapOptions, total=False):
    """Of a step whose items are yielded."""

    batch: int
    flush_every: float
    max_in_flight: int
    key: Callable[[Any], str]


def trying(options: Mapping[str, Any], at: SourceLine) -> Trying:
    """How often, for how long and how many at once."""
    _at_least(options, "retries", 0, at)
    _above_zero(options, "timeout", at)
    _at_least(options, "concurrency", 1, at)
    backoff = options.get("backoff", Backoff())
    if not isinstance(backoff, Backoff):
        raise InvalidArgument(at, "step", "backoff", backoff, "a Backoff")
    resumable = options.get("resumable", False)
    if not isinstance(resumable, bool):
        raise InvalidArgument(at, "step", "resumable", resumable, "True or False")
    return Trying(
        options.get("retries", 0),
        backoff,
        options.get("timeout"),
        options.get("concurrency"),
        resumable,
    )


def gate(options: Mapping[str, Any], at: SourceLine) -> Gate:
    """What has to hold before."""
    _above_zero(options, "wait_timeout", at)
    for name in ("condition", "wait_for"):
        if name in options and not callable(options[name]):
            raise InvalidArgument(at, "step", name, options[name], "a function")
    return Gate(
        options.get("condition"),
        options.get("wait_for"),
        options.get("wait_timeout"),
        options.get("signal"),
    )


def generating(options: Mapping[str, Any], at: SourceLine) -> Generating:
    """How items become tasks."""
    _at_least(options, "batch", 1, at)
    _at_least(options, "max_in_flight", 1, at)
    _above_zero(options, "flush_every", at)
    known = {
        name: options[name]
        for name in ("batch", "flush_every", "max_in_flight", "key")
        if name in options
    }
    return Generating(**known)


def on_fail(options: Mapping[str, Any], at: SourceLine) -> FailurePolicy:
    """What failures are borne."""
    policy = options.get("on_fail", FAIL_AT_FIRST)
    if isinstance(policy, FailAtFirst):
        return policy
    if not isinstance(policy, Tolerate) or (policy.count is None and policy.share is None):
        expected = "FailAtFirst(), Tolerate(count=…) or Tolerate(share=…)"
        raise InvalidArgument(at, "step", "on_fail", policy, expected)
    if (policy.count or 0) < 0 or not 0 <= (policy.share or 0) <= 1:
        raise InvalidArgument(at, "step", "on_fail", policy, "a count from 0, a share in 0…1")
    return policy


def reads(options: Mapping[str, Any], at: SourceLine) -> tuple[str, ...]:
    """The keys that a step looks at: those it names, and those of its gate."""
    named = names("reads", options.get("reads", ()), at)
    gate = options.get("wait_for")
    of_gate = keys_of(gate.conditions) if isinstance(gate, StateGate) else ()
    return tuple(dict.fromkeys((*named, *of_gate)))


def names(option: str, given: object, at: SourceLine) -> tuple[str, ...]:
    """The names of one thing or several, which are given as such or by name."""
    several = given if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    found = [it if isinstance(it, str) else getattr(it, "name", None) for it in several]
    if not all(isinstance(it, str) for it in found) or len(set(found)) < len(found):
        raise InvalidArgument(at, "step", option, given, "what was declared, or its name, once")
    return tuple(str(it) for it in found)


def _at_least(options: Mapping[str, Any], name: str, least: int, at: SourceLine) -> None:
    value = options.get(name, least)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidArgument(at, "step", name, value, f"a whole number from {least}")


def _above_zero(options: Mapping[str, Any], name: str, at: SourceLine) -> None:
    value = options.get(name, 1.0)
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        raise InvalidArgument(at, "step", name, value, "a number of seconds above 0")
