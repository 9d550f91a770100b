"""The context of a task, the first parameter of every step function."""

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
        """The id of the run."""
        ...

    @property
    def step(self) -> str:
        """The name of the step."""
        ...

    @property
    def position(self) -> int:
        """The position of the item, from 0; -1 for a step's own function."""
        ...

    @property
    def attempt(self) -> int:
        """The number of the attempt, from 1."""
        ...

    @property
    def identity(self) -> str:
        """Unique to the task and the same in every attempt, for idempotent effects."""
        ...

    @property
    def is_cancelled(self) -> bool:
        """Whether the result is not needed: the run is closed, or another worker has the task.

        Also when the worker stops and another one is to resume the task.
        """
        ...

    def check(self) -> None:
        """Raise `FlowCancelled` if the task is cancelled."""
        ...

    @overload
    def get_state(self, key: StateKey[T]) -> T | None: ...
    @overload
    def get_state(self, key: str) -> Any: ...

    def set_state(self, key: StateKey[T] | str, value: T) -> None:
        """Write a key that the step declares in `writes`.

        In a generator, everything yielded and saved so far is stored first.
        """
        ...

    def set_state_once(self, key: StateKey[T] | str, value: T) -> T:
        """Write a key unless it has a value; returns the value it has."""
        ...

    def with_state(
        self, values: Mapping[StateKey[Any] | str, object], work: Callable[[Any], T]
    ) -> T:
        """Run `work` on a connection to the flow's database, and write these keys with it.

        Both happen in one transaction. `work` may be called again after a lost connection.
        """
        ...

    def wait_for_state(
        self,
        predicate: Callable[[FlowStateReader], bool],
        poll_interval: float = POLL_INTERVAL,
        timeout: float | None = None,
    ) -> FlowStateReader:
        """Return when the predicate holds for the keys that the step declares in `reads`.

        Until then the task is suspended and holds no thread. Its function is started again from
        the first line when one of these keys changes, at most every `poll_interval` seconds.
        """
        ...

    def run_pipeline(
        self, pipeline: Pipeline, data: Data, *, name: str = "", timeout: float | None = None
    ) -> Released:
        """Submit a run of a pipeline with this data, and return when it is released.

        The data is a folder as `tidegate run` takes it, or the files of each source. The run is
        started once, whatever happens to the worker. Meanwhile the task is suspended; its function
        is started again from the first line when the run is closed. A step that runs one pipeline
        several times distinguishes its runs by `name`. Raises the error of a failed run, or
        `PipelineNotReleased` after `timeout` seconds. If the step fails or the flow is cancelled,
        the run is cancelled as well.
        """
        ...

    @property
    def cursor(self) -> Any:
        """Of a generator: the cursor saved last, in this or an earlier attempt; None at first."""
        ...

    def save_cursor(self, value: object) -> None:
        """Of a generator: save where to resume behind what was yielded so far.

        It is stored with the next batch of items. After a failure the generator may resume at an
        earlier cursor, and yields some items again. Save what those are made of in the cursor
        before yielding them, if a later attempt could not find it again.
        """
        ...
