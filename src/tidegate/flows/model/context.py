"""What a function of a flow is given first: what it works for, and what it may do beside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, overload

from tidegate.flows.model.keys import FlowStateReader, StateKey

if TYPE_CHECKING:
    from tidegate.flows.model.pipeline_result import Released
    from tidegate.pipeline import Pipeline

T = TypeVar("T")
Data: TypeAlias = str | PathLike[str] | Mapping[str, Sequence[str | PathLike[str]]]
"""A folder with a folder for each source, or by source its files."""
POLL_INTERVAL = 0.25


class Context(Protocol):
    """One attempt at one task of a run."""

    @property
    def run(self) -> int:
        """The number of the run."""
        ...

    @property
    def step(self) -> str:
        """The name of the step."""
        ...

    @property
    def position(self) -> int:
        """Of the item in its stream, from 0; -1 for a step's own function."""
        ...

    @property
    def attempt(self) -> int:
        """The first is 1."""
        ...

    @property
    def identity(self) -> str:
        """The same at every attempt at this task, and of no other: for idempotent effects."""
        ...

    @property
    def is_cancelled(self) -> bool:
        """Whether nobody wants the result any more: the run is given up, or somebody else has it.

        Also when its worker is about to stop and somebody else is to go on.
        """
        ...

    def check(self) -> None:
        """Raise `FlowCancelled` when nobody wants the result any more."""
        ...

    @overload
    def get_state(self, key: StateKey[T]) -> T | None: ...
    @overload
    def get_state(self, key: str) -> Any: ...

    def set_state(self, key: StateKey[T] | str, value: T) -> None:
        """Write a key that the step has declared in `writes`.

        In a generator, what it has yielded and saved so far is stored before.
        """
        ...

    def set_state_once(self, key: StateKey[T] | str, value: T) -> T:
        """Write a key unless it has a value, and answer the value that it has."""
        ...

    def with_state(
        self, values: Mapping[StateKey[Any] | str, object], work: Callable[[Any], T]
    ) -> T:
        """Do `work` on a connection to the flow's database, and write these keys with it.

        One transaction: both are there afterwards, or neither is. Work may be called again when
        the server went away under it.
        """
        ...

    def wait_for_state(
        self,
        predicate: Callable[[FlowStateReader], bool],
        poll_interval: float = POLL_INTERVAL,
        timeout: float | None = None,
    ) -> FlowStateReader:
        """Return when the predicate holds for the keys that the step has declared in `reads`.

        Until then the step holds nothing: it is put aside here and begun again from its first line
        when one of these keys has changed, at most once every `poll_interval` seconds.
        """
        ...

    def run_pipeline(
        self, pipeline: Pipeline, data: Data, *, name: str = "", timeout: float | None = None
    ) -> Released:
        """Submit a run of a pipeline with this data, and return when it is released.

        The data is a folder as `tidegate run` takes it, or the files of each source. The run is
        begun once, whatever happens to the worker; meanwhile the step holds nothing: it is put
        aside here and begun again from its first line when the run is closed. A step that runs one
        pipeline several times tells its runs apart by `name`. Raises what the run failed of, or
        `PipelineNotReleased` after `timeout` seconds. A run that is not waited for any more,
        because its step has failed or the flow was cancelled, is cancelled as well.
        """
        ...

    @property
    def cursor(self) -> Any:
        """Of a generator: what was saved last, in this attempt or an earlier one; None at first."""
        ...

    def save_cursor(self, value: object) -> None:
        """Of a generator: what it has to know to go on behind what it has yielded so far.

        It is kept with the next items, or a moment later: after a crash the generator may go on at
        an earlier one, and some items are yielded again. What they were made of, and would not be
        found again, belongs into the cursor before they are yielded.
        """
        ...
