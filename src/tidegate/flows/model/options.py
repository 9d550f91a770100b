"""The options of decorators: their names and types, and what is possible at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from math import inf
from typing import TYPE_CHECKING, Any, TypedDict

from tidegate.backoff import Backoff
from tidegate.errors import InvalidArgument, UnknownOption
from tidegate.flows.model.gates import AllOf, IsSet, Reached, StateGate, keys_of
from tidegate.flows.model.keys import StateKey
from tidegate.flows.model.policies import (
    FAIL_AT_FIRST,
    FailAtFirst,
    FailurePolicy,
    Tolerate,
)
from tidegate.flows.model.steps import Gate, Generating, StatePredicate, Step, Trying

if TYPE_CHECKING:
    from tidegate.errors import SourceLine

LONGEST = 100 * 365 * 86_400.0
"""Seconds that anything may be told to take; PostgreSQL could not hold a time much further away."""
Named = Step[..., Any] | str
Key = StateKey[Any] | str


class HandlerOptions(TypedDict, total=False):
    """Of anything that is run."""

    name: str
    """By default that of the function."""
    retries: int
    """Further attempts after one that failed; 0 by default. Each item has its own."""
    backoff: Backoff
    """The pauses before further attempts."""
    timeout: float
    """Seconds that one attempt may take; by default, any."""
    concurrency: int
    """How many one worker runs at once; by default, as many as it has threads."""


class ReduceOptions(HandlerOptions, total=False):
    """Of a step, whatever it depends on."""

    signal: Any
    """The type of a signal that the step waits for and takes as its last parameter."""
    condition: Callable[..., bool]
    """Given what the step takes, without the context; where it is false, the step is skipped.

    Of a map step it is asked once, before there are items: it is given all of the first dependency.
    """
    wait_for: StatePredicate
    """A gate, or a function of the state; the step begins when it holds, and holds nothing before.

    It is asked after `condition`.
    """
    wait_timeout: float
    """Seconds after which a step that still waits at `wait_for` fails; by default, never."""
    writes: Key | Iterable[Key]
    """Keys of the state that the step may write."""
    reads: Key | Iterable[Key]
    """Keys of the state that the step may read or wait for; those of a gate need not be named."""
    resumable: bool
    """Whether it goes on where it was, so that a worker that stops need not wait for its end."""


class StepOptions(ReduceOptions, total=False):
    """Of a step."""

    depends_on: Named | Iterable[Named]
    """Steps, or their names, that end before it begins; it takes what they give, in this order."""


class MapOptions(StepOptions, total=False):
    """Of a step with items."""

    on_fail: FailurePolicy
    """How many items may fail: `FailAtFirst()`, which is none, or `Tolerate(…)`."""


class GeneratorOptions(MapOptions, total=False):
    """Of a step whose items are yielded."""

    batch: int
    """Items that are written at once; 100 by default."""
    flush_every: float
    """Seconds after which a batch that is not full is written all the same; 0.2 by default."""
    max_in_flight: int
    """Items that are not done yet, at which the generator waits; 10,000 by default."""
    key: Callable[[Any], str]
    """What identifies an item, so that it is handled once; by default its position."""


OPTIONS: Mapping[str, tuple[str, ...]] = {
    "step": tuple(StepOptions.__annotations__),
    "map_step": tuple(MapOptions.__annotations__),
    "generator": tuple(GeneratorOptions.__annotations__),
    "reduce": tuple(ReduceOptions.__annotations__),
    "handler": tuple(HandlerOptions.__annotations__),
}
"""The options of each decorator."""


def check_known(decorator: str, options: Iterable[str], at: SourceLine) -> None:
    """Raise `UnknownOption` for one that the decorator does not have."""
    known = OPTIONS[decorator]
    for option in options:
        if option not in known:
            elsewhere = [name for name, theirs in OPTIONS.items() if option in theirs]
            (nearest, *_) = [*get_close_matches(option, known, 1), ""]
            raise UnknownOption(
                at, decorator, option, ", ".join(known), nearest, ", ".join(elsewhere)
            )


def trying(options: Mapping[str, Any], at: SourceLine) -> Trying:
    """How often, for how long and how many at once."""
    _at_least(options, "retries", 0, at)
    _above_zero(options, "timeout", at)
    _at_least(options, "concurrency", 1, at)
    backoff = options.get("backoff", Backoff())
    _check_backoff(backoff, at)
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
    if "wait_timeout" in options and "wait_for" not in options:
        expected = "wait_for=… beside it, whose wait it bounds"
        raise InvalidArgument(at, "step", "wait_timeout", options["wait_timeout"], expected)
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


def keys_of_gate(wait_for: object) -> tuple[str, ...]:
    """The names of the keys that a gate looks at; a function does not tell."""
    return keys_of(wait_for.conditions) if isinstance(wait_for, StateGate) else ()


def keys_in_gate(wait_for: object) -> Iterator[StateKey[Any]]:
    """The keys that a gate was made of."""
    if isinstance(wait_for, AllOf):
        yield from (key for gate in wait_for.gates for key in keys_in_gate(gate))
    elif isinstance(wait_for, IsSet | Reached):
        made_of = (wait_for.key, getattr(wait_for, "target", None))
        yield from (it for it in made_of if isinstance(it, StateKey))


def several(given: object) -> tuple[object, ...]:
    """One thing or several as a tuple."""
    is_many = isinstance(given, Iterable) and not isinstance(given, str)
    return tuple(given) if is_many else (given,)  # type: ignore[arg-type]  # is_many says so


def names(option: str, given: object, at: SourceLine) -> tuple[str, ...]:
    """The names of one thing or several, which are given as such or by name."""
    found = [it if isinstance(it, str) else getattr(it, "name", None) for it in several(given)]
    if not all(isinstance(it, str) for it in found) or len(set(found)) < len(found):
        raise InvalidArgument(at, "step", option, given, "what was declared, or its name, once")
    return tuple(str(it) for it in found)


def _at_least(options: Mapping[str, Any], name: str, least: int, at: SourceLine) -> None:
    value = options.get(name, least)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidArgument(at, "step", name, value, f"a whole number from {least}")


def _above_zero(options: Mapping[str, Any], name: str, at: SourceLine) -> None:
    value = options.get(name, 1.0)
    if not _is_number(value) or not 0 < value <= LONGEST:
        expected = "a number of seconds above 0, and no more than a hundred years"
        raise InvalidArgument(at, "step", name, value, expected)


def _check_backoff(given: object, at: SourceLine) -> None:
    if not isinstance(given, Backoff):
        raise InvalidArgument(at, "step", "backoff", given, "a Backoff")
    parts = (given.first, given.factor, given.longest, given.jitter)
    is_possible = all(_is_number(it) for it in parts) and (
        0 <= given.first < inf and 0 <= given.longest <= LONGEST
        and 1 <= given.factor < inf and 0 <= given.jitter <= 1
    )  # fmt: skip
    if not is_possible:
        expected = "first and longest from 0, at most a hundred years; factor from 1, jitter in 0…1"
        raise InvalidArgument(at, "step", "backoff", given, expected)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
