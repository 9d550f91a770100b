"""The options of decorators: names, types and checks."""

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
from tidegate.flows.model.steps import Gate, RetryOptions, SpawnOptions, StatePredicate, Step

if TYPE_CHECKING:
    from tidegate.errors import SourceLine

MAX_SECONDS = 100 * 365 * 86_400.0
"""The longest timeout; PostgreSQL cannot store times much further away."""
Named = Step[..., Any] | str
Key = StateKey[Any] | str


class HandlerOptions(TypedDict, total=False):
    """Options of every function."""

    name: str
    """By default the name of the function."""
    retries: int
    """Further attempts after a failed one, per item; 0 by default."""
    backoff: Backoff
    """The pauses before further attempts."""
    timeout: float
    """Seconds per attempt; by default no limit."""
    concurrency: int
    """How many tasks one worker runs at once; by default its number of threads."""


class ReduceOptions(HandlerOptions, total=False):
    """Options of a step, without its dependencies."""

    signal: Any
    """The type of a signal that the step waits for, its last parameter."""
    condition: Callable[..., bool]
    """A function of the step's parameters without the context; if false, the step is skipped.

    Of a map step it is evaluated once, with the whole first dependency.
    """
    wait_for: StatePredicate
    """A gate, or a function of the state; the step starts when it holds.

    It is evaluated after `condition`; meanwhile the step holds no thread.
    """
    wait_timeout: float
    """Seconds after which a step that waits at `wait_for` fails; by default never."""
    writes: Key | Iterable[Key]
    """State keys that the step may write."""
    reads: Key | Iterable[Key]
    """State keys that the step may read or wait for; those of its gate are implied."""
    resumable: bool
    """Whether another worker can resume it, so that a stopping worker cancels it."""


class StepOptions(ReduceOptions, total=False):
    """Options of a step."""

    depends_on: Named | Iterable[Named]
    """Steps, or their names, that end before it starts; it takes their results in this order."""


class MapOptions(StepOptions, total=False):
    """Options of a step with items."""

    on_fail: FailurePolicy
    """How many items may fail: `FailAtFirst()`, which is none, or `Tolerate(…)`."""


class GeneratorOptions(MapOptions, total=False):
    """Options of a generator."""

    batch: int
    """Items that are stored together; 100 by default."""
    flush_every: float
    """Seconds after which a partial batch is stored; 0.2 by default."""
    max_in_flight: int
    """Items in flight at which the generator waits; 10,000 by default."""
    key: Callable[[Any], str]
    """A function that returns an item's identifier; by default its position."""


OPTIONS: Mapping[str, tuple[str, ...]] = {
    "step": tuple(StepOptions.__annotations__),
    "map_step": tuple(MapOptions.__annotations__),
    "generator": tuple(GeneratorOptions.__annotations__),
    "reduce": tuple(ReduceOptions.__annotations__),
    "handler": tuple(HandlerOptions.__annotations__),
}
"""The options of each decorator."""


def check_known(decorator: str, options: Iterable[str], at: SourceLine) -> None:
    """Raise `UnknownOption` for options that the decorator does not have."""
    known = OPTIONS[decorator]
    for option in options:
        if option not in known:
            elsewhere = [name for name, theirs in OPTIONS.items() if option in theirs]
            (nearest, *_) = [*get_close_matches(option, known, 1), ""]
            raise UnknownOption(
                at, decorator, option, ", ".join(known), nearest, ", ".join(elsewhere)
            )


def retry_options(options: Mapping[str, Any], at: SourceLine) -> RetryOptions:
    """Retries, timeout and concurrency."""
    _at_least(options, "retries", 0, at)
    _above_zero(options, "timeout", at)
    _at_least(options, "concurrency", 1, at)
    backoff = options.get("backoff", Backoff())
    _check_backoff(backoff, at)
    resumable = options.get("resumable", False)
    if not isinstance(resumable, bool):
        raise InvalidArgument(at, "step", "resumable", resumable, "True or False")
    return RetryOptions(
        options.get("retries", 0),
        backoff,
        options.get("timeout"),
        options.get("concurrency"),
        resumable,
    )


def gate(options: Mapping[str, Any], at: SourceLine) -> Gate:
    """Condition, gate and signal."""
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


def generating(options: Mapping[str, Any], at: SourceLine) -> SpawnOptions:
    """Batching and backpressure of a generator."""
    _at_least(options, "batch", 1, at)
    _at_least(options, "max_in_flight", 1, at)
    _above_zero(options, "flush_every", at)
    known = {
        name: options[name]
        for name in ("batch", "flush_every", "max_in_flight", "key")
        if name in options
    }
    return SpawnOptions(**known)


def on_fail(options: Mapping[str, Any], at: SourceLine) -> FailurePolicy:
    """The failure policy."""
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
    """The names of the keys of a gate; unknown for a plain function."""
    return keys_of(wait_for.conditions) if isinstance(wait_for, StateGate) else ()


def keys_in_gate(wait_for: object) -> Iterator[StateKey[Any]]:
    """The keys of a gate."""
    if isinstance(wait_for, AllOf):
        yield from (key for gate in wait_for.gates for key in keys_in_gate(gate))
    elif isinstance(wait_for, IsSet | Reached):
        keys = (wait_for.key, getattr(wait_for, "target", None))
        yield from (it for it in keys if isinstance(it, StateKey))


def several(given: object) -> tuple[object, ...]:
    """One value or several, as a tuple."""
    is_many = isinstance(given, Iterable) and not isinstance(given, str)
    return tuple(given) if is_many else (given,)  # type: ignore[arg-type]  # is_many says so


def names(option: str, given: object, at: SourceLine) -> tuple[str, ...]:
    """The names of declared things, which are given themselves or by name."""
    found = [it if isinstance(it, str) else getattr(it, "name", None) for it in several(given)]
    if not all(isinstance(it, str) for it in found) or len(set(found)) < len(found):
        raise InvalidArgument(at, "step", option, given, "declared names, each once")
    return tuple(str(it) for it in found)


def _at_least(options: Mapping[str, Any], name: str, least: int, at: SourceLine) -> None:
    value = options.get(name, least)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidArgument(at, "step", name, value, f"a whole number from {least}")


def _above_zero(options: Mapping[str, Any], name: str, at: SourceLine) -> None:
    value = options.get(name, 1.0)
    if not _is_number(value) or not 0 < value <= MAX_SECONDS:
        expected = "a number of seconds above 0, and no more than a hundred years"
        raise InvalidArgument(at, "step", name, value, expected)


def _check_backoff(given: object, at: SourceLine) -> None:
    if not isinstance(given, Backoff):
        raise InvalidArgument(at, "step", "backoff", given, "a Backoff")
    parts = (given.first, given.factor, given.longest, given.jitter)
    is_possible = all(_is_number(it) for it in parts) and (
        0 <= given.first < inf and 0 <= given.longest <= MAX_SECONDS
        and 1 <= given.factor < inf and 0 <= given.jitter <= 1
    )  # fmt: skip
    if not is_possible:
        expected = "first and longest from 0, at most a hundred years; factor from 1, jitter in 0…1"
        raise InvalidArgument(at, "step", "backoff", given, expected)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
