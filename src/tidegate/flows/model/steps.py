"""Steps and handlers as declared, with their source line and options."""

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
    """How the tasks of a step are created."""

    PLAIN = "plain"
    MAP = "map"
    """A task for each element of its first dependency."""
    GENERATOR = "generator"
    """A task for each item that it yields; their number is not known before."""
    REDUCE = "reduce"


@dataclass(frozen=True, slots=True)
class RetryOptions:
    """Retries, timeout and concurrency of a function."""

    retries: int = 0
    backoff: Backoff = field(default_factory=Backoff)
    timeout: float | None = None
    concurrency: int | None = None
    is_resumable: bool = False
    """A stopping worker cancels it at once, and another one resumes it."""


@dataclass(frozen=True, slots=True)
class Gate:
    """What has to hold before a step starts."""

    condition: Callable[..., bool] | None = None
    """A function of its dependencies; if it does not hold, the step is skipped."""
    wait_for: StatePredicate | None = None
    """A function of the state; the step is suspended until it holds."""
    wait_timeout: float | None = None
    signal: Any = None
    """The type of its signal; None if it takes none."""


@dataclass(frozen=True, slots=True)
class SpawnOptions:
    """Batching and backpressure of a generator."""

    batch: int = 100
    flush_every: float = 0.2
    """Seconds after which a partial batch is spawned."""
    max_in_flight: int = 10_000
    """Items in flight at which the generator waits."""
    key: Callable[[Any], str] | None = None
    """Returns the identifier of an item; by default its position."""


@dataclass(frozen=True)
class Step(Generic[P, R]):
    """A step of a flow. Calling it calls the plain function."""

    at: SourceLine = field(repr=False)
    name: str
    kind: StepKind
    function: Callable[P, R] = field(repr=False)
    signature: Signature = field(repr=False)
    depends_on: tuple[str, ...] = ()
    retry_options: RetryOptions = RetryOptions()
    gate: Gate = Gate()
    on_fail: FailurePolicy = FAIL_AT_FIRST
    writes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the plain function."""
        return self.function(*args, **kwargs)


@dataclass(frozen=True)
class Handler(Generic[P, R]):
    """The function of each item of a generator."""

    at: SourceLine = field(repr=False)
    name: str
    function: Callable[P, R] = field(repr=False)
    signature: Signature = field(repr=False)
    retry_options: RetryOptions = RetryOptions()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the plain function."""
        return self.function(*args, **kwargs)
