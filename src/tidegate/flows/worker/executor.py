"""Executes a task: calls its function and returns the outcome.

Outcomes are committed in batches by `result_committer`. Suspending, skipping and generating are
rare, and are committed here.
"""

from __future__ import annotations

import logging
import random
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING

import tidegate.errors
from tidegate.errors import (
    ClaimLost,
    CursorRefused,
    CutoverError,
    FinalFailure,
    FlowCancelled,
    FlowRedefined,
    FlowRunClosed,
    InvalidFlowValue,
    PipelineNotReleased,
    PipelineRunTwice,
    StateNeverCame,
    StateRegressed,
    StateUndeclared,
    TidegateError,
)
from tidegate.flows.model.steps import StepKind
from tidegate.flows.worker.arguments import Arguments
from tidegate.flows.worker.generator_runner import generate, position_of
from tidegate.flows.worker.store_errors import StoreUnavailable, store_access
from tidegate.flows.worker.suspend import Suspended
from tidegate.flows.worker.task_context import GATE
from tidegate.store import storable
from tidegate.store.flows import tasks as flow_tasks
from tidegate.store.flows.tasks import OWN

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.flows.model.definition import StepDefinition
    from tidegate.flows.model.steps import RetryOptions
    from tidegate.flows.worker.task_context import TaskContext
    from tidegate.store import Connection, Database
    from tidegate.store.flows.tasks import Claim, GeneratorPosition

log = logging.getLogger(__name__)

FINAL = (
    CursorRefused,
    FinalFailure,
    FlowRedefined,
    InvalidFlowValue,
    PipelineNotReleased,
    PipelineRunTwice,
    StateNeverCame,
    StateRegressed,
    StateUndeclared,
)
"""Errors that another attempt would raise again."""
ELSEWHERE = tuple(
    {str(Path(tidegate.errors.__file__).parents[1]), *sysconfig.get_paths().values()} - {""}
)
"""Folders without user code: Tidegate, Python and installed packages."""
LONGEST = 2000
"""Characters of an error that are stored."""


@dataclass(frozen=True, slots=True)
class TaskSucceeded:
    """A task has returned this result, as JSON."""

    claim: Claim
    json: str


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """An attempt has failed."""

    claim: Claim
    error: str
    pause: float
    is_final: bool


@dataclass(frozen=True, slots=True)
class TaskReturned:
    """The task goes back to its queue, or is dropped with its run."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class TaskSettled:
    """The outcome is committed already, or the claim was lost."""

    claim: Claim


TaskOutcome = TaskSucceeded | TaskFailed | TaskReturned | TaskSettled


class TaskExecutor:
    """Executes tasks of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._arguments = Arguments(database)

    def execute(self, context: TaskContext) -> TaskOutcome:
        """Call the function of a task; raises only if the store is unavailable."""
        outcome = self._attempt(context)
        # A function that caught `Suspended` has not waited.
        return outcome if context.suspended is None else self._suspend(context, context.suspended)

    def _attempt(self, context: TaskContext) -> TaskOutcome:
        claim = context.claim
        try:
            context.check()
            return self._own(context) if claim.position == OWN else self._item(context)
        except StoreUnavailable:
            raise
        except Suspended:
            return TaskSettled(claim)
        except (FlowCancelled, FlowRunClosed) as closed:
            # A cancellation that the user's code made up is a failure; else it would never end.
            is_genuine = context.is_cancelled or isinstance(closed, FlowRunClosed)
            is_ours = is_genuine and closed.run == claim.run
            return TaskReturned(claim) if is_ours else failed(context, closed)
        except ClaimLost as lost:
            if lost.run != claim.run:
                return failed(context, lost)
            log.warning("%s", lost)
            return TaskSettled(claim)
        except BaseException as error:  # noqa: BLE001  user code raises anything
            return failed(context, error)

    def _item(self, context: TaskContext) -> TaskOutcome:
        part = context.part
        function = part.handler or part.step
        result = function.function(context, *self._arguments.of(part, context.claim))
        return TaskSucceeded(context.claim, part.gives.encode(result))

    def _own(self, context: TaskContext) -> TaskOutcome:
        part, claim = context.part, context.claim
        self._arguments.check_kind(part, claim)
        if part.step.kind is StepKind.GENERATOR:
            return self._generator(context)
        if not is_behind_gate(claim):
            if not self._is_enabled(part, claim):
                return self._skip(context)
            context.pass_gate()
        if part.step.kind is StepKind.MAP:
            return TaskSucceeded(claim, "null")
        result = part.step.function(context, *self._arguments.of(part, claim))
        return TaskSucceeded(claim, part.gives.encode(result))

    def _generator(self, context: TaskContext) -> TaskOutcome:
        part, claim = context.part, context.claim
        place = position_of(self._database, claim)
        if not is_behind_gate(claim, place):
            if not self._is_enabled(part, claim):
                return self._skip(context)
            context.pass_gate()
        generate(self._database, context, place, self._arguments.of(part, claim))
        return TaskSettled(claim)

    def _is_enabled(self, part: StepDefinition, claim: Claim) -> bool:
        condition = part.step.gate.condition
        return condition is None or condition(*self._arguments.of(part, claim))

    def _skip(self, context: TaskContext) -> TaskOutcome:
        return self._written(context, lambda c: flow_tasks.skip(c, context.claim))

    def _suspend(self, context: TaskContext, wait: Suspended) -> TaskOutcome:
        return self._written(context, lambda c: wait.suspend(c, context.claim))

    def _written(self, context: TaskContext, write: Callable[[Connection], object]) -> TaskOutcome:
        try:
            with store_access():
                self._database.transact(write)
        except ClaimLost as lost:
            log.warning("%s", lost)
        except (TidegateError, StoreUnavailable):
            raise
        except Exception as error:  # noqa: BLE001  a timeout that PostgreSQL cannot hold
            return failed(context, error)
        return TaskSettled(context.claim)


def is_behind_gate(claim: Claim, place: GeneratorPosition | None = None) -> bool:
    """Whether a step has started: it waits inside of its function, or has yielded something.

    The conditions of its start are not evaluated again.
    """
    if claim.wait_number is not None and claim.wait_number > GATE:
        return True
    return place is not None and (place.spawned > 0 or place.cursor is not None)


def failed(context: TaskContext, error: BaseException) -> TaskFailed:
    """The outcome of a failed attempt, with the pause before the next one."""
    chance = random.random()  # noqa: S311  jitter
    pause = retry_options_of(context).backoff.pause(max(1, context.attempt), chance)
    return TaskFailed(context.claim, render_error(error), pause, is_final(error))


def is_final(error: BaseException) -> bool:
    """Whether another attempt would fail for the same reason, as far as that is known."""
    is_permanent = isinstance(error, CutoverError) and not error.retryable
    return is_permanent or isinstance(error, FINAL)


def retry_options_of(context: TaskContext) -> RetryOptions:
    """The options of a task: of the handler for items of a generator, else of the step."""
    part = context.part
    if context.position != OWN and part.handler is not None:
        return part.handler.retry_options
    return part.step.retry_options


def render_error(error: BaseException) -> str:
    """An error and its cause as one text that PostgreSQL can hold.

    >>> render_error(KeyError("price"))
    "KeyError: 'price'"
    """
    text = _name(error) + _location(error)
    if error.__cause__ is not None:
        text += f" (from {_name(error.__cause__)})"
    return storable(text, LONGEST)


def _location(error: BaseException) -> str:
    """The line of user code; errors of Tidegate name their subject themselves."""
    trace = extract_tb(error.__traceback__)
    frames = [frame for frame in trace if not frame.filename.startswith(ELSEWHERE)]
    if isinstance(error, TidegateError) or not frames:
        return ""
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})"


def _name(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as failure:  # noqa: BLE001  __str__ of a user's error
        return f"{type(error).__name__}, whose text raises {type(failure).__name__}"
