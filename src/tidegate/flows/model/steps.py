"""The parts of a flow as values: what was declared, where, and with which options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from tidegate.backoff import Backoff
from tidegate.flows.model.keys import FlowStateReader
from tidegate.flows.model.policies import FAIL_AT_FIRST, FailurePolicy

if TYPE_CHECKING:
    from tidegate.errors import SourceLine
    from tidegate.flows.model.signatures import Signature

P = ParamSpec("P")
R = TypeVar("R")

StatePredicate = Callable[[FlowStateReader], bool]


class StepKind(Enum):
    """How the work of a step comes about."""

    PLAIN = "plain"
    MAP = "map"
    """A task for each element of what its first dependency gave."""
    GENERATOR = "generator"
    """A task for each item that it yields; how many, nobody knows before."""
    REDUCE = "reduce"


@dataclass(frozen=True, slots=True)
class Trying:
    """How a function is run: how often, for how long, how many at once in one worker."""

    retries: int = 0
    backoff: Backoff = field(default_factory=Backoff)
    timeout: float | None = None
    concurrency: int | None = None
    is_resumable: bool = False
    """It goes on where it was: a worker that is to stop tells it at once, and another goes on."""


@dataclass(frozen=True, slots=True)
class Gate:
    """What has to hold before a step begins."""

    condition: Callable[..., bool] | None = None
    """Of its dependencies; the step is skipped where it does not hold."""
    wait_for: StatePredicate | None = None
    """Of the flow's state; the step is suspended until it holds."""
    wait_timeout: float | None = None
    signal: Any = None
    """The type of the signal that it takes; None: it takes none."""


@dataclass(frozen=True, slots=True)
class Generating:
    """How the items of a generator become tasks."""

    batch: int = 100
    flush_every: float = 0.2
    """Seconds after which a batch that is not full is spawned all the same."""
    max_in_flight: int = 10_000
    """Items that are spawned and not terminal, at which the generator waits."""
    key: Callable[[Any], str] | None = None
    """What identifies an item; by default its position."""


@dataclass(frozen=True)
class Step(Generic[P, R]):
    """A step of a flow. Calling it calls the function, as if it had not been decorated."""

    at: SourceLine = field(repr=False)
    name: str
    kind: StepKind
    function: Callable[P, R] = field(repr=False)
    signature: Signature = field(repr=False)
    depends_on: tuple[str, ...] = ()
    trying: Trying = Trying()
    gate: Gate = Gate()
    on_fail: FailurePolicy = FAIL_AT_FIRST
    writes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """As if it were a plain function."""
        return self.function(*args, **kwargs)


@dataclass(frozen=True)
class Handler(Generic[P, R]):
    """What is done with each item of a generator."""

    at: SourceLine = field(repr=False)
    name: str
    function: Callable[P, R] = field(repr=False)
    signature: Signature = field(repr=False)
    trying: Trying = Trying()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """As if it were a plain function."""
        return self.function(*args, **kwargs)
