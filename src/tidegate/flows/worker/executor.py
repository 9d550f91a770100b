"""Performing a task: its function is called, and what came of it is said.

What it gives is completed with others in a batch (`results`). Waiting, skipping and generating are
written here, for they are rare.
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
from tidegate.flows.worker.arguments import Inputs
from tidegate.flows.worker.generator_runner import generate, place_of
from tidegate.flows.worker.store_errors import StoreUnavailable, ours
from tidegate.flows.worker.suspend import Suspended
from tidegate.flows.worker.task_context import GATE
from tidegate.store import storable
from tidegate.store.flows import tasks as flow_tasks
from tidegate.store.flows.tasks import OWN

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.flows.model.definition import Part
    from tidegate.flows.model.steps import Trying
    from tidegate.flows.worker.task_context import TaskContext
    from tidegate.store import Connection, Database
    from tidegate.store.flows.tasks import Claim, GeneratorPlace

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
"""What the same attempt again would not change."""
ELSEWHERE = tuple(
    {str(Path(tidegate.errors.__file__).parents[1]), *sysconfig.get_paths().values()} - {""}
)
"""Where no user's code is: Tidegate itself, Python and what is installed with it."""
LONGEST = 2000
"""Characters of an error that are kept."""


@dataclass(frozen=True, slots=True)
class Done:
    """A task has given this, as JSON."""

    claim: Claim
    json: str


@dataclass(frozen=True, slots=True)
class Failed:
    """An attempt has failed."""

    claim: Claim
    error: str
    pause: float
    is_final: bool


@dataclass(frozen=True, slots=True)
class LetGo:
    """Somebody else is to do it, or nobody."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class Settled:
    """What there was to write is written, or is not ours to write."""

    claim: Claim


Outcome = Done | Failed | LetGo | Settled


class TaskExecutor:
    """Performs tasks of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._inputs = Inputs(database)

    def perform(self, context: TaskContext) -> Outcome:
        """Call the function of a task; raises only what keeps it from saying what came of it."""
        outcome = self._attempt(context)
        # Whoever swallowed the end of its attempt at a wait has not waited.
        return outcome if context.suspended is None else self._suspend(context, context.suspended)

    def _attempt(self, context: TaskContext) -> Outcome:
        claim = context.claim
        try:
            context.check()
            return self._own(context) if claim.position == OWN else self._item(context)
        except StoreUnavailable:
            raise
        except Suspended:
            return Settled(claim)
        except (FlowCancelled, FlowRunClosed) as closed:
            # Otherwise it is a failure: without an attempt that counts, it would have no end.
            is_told = context.is_cancelled or isinstance(closed, FlowRunClosed)
            is_ours = is_told and closed.run == claim.run
            return LetGo(claim) if is_ours else failed(context, closed)
        except ClaimLost as lost:
            if lost.run != claim.run:
                return failed(context, lost)
            log.warning("%s", lost)
            return Settled(claim)
        except BaseException as error:  # noqa: BLE001  whatever a user's function raises
            return failed(context, error)

    def _item(self, context: TaskContext) -> Outcome:
        part = context.part
        function = part.handler or part.step
        result = function.function(context, *self._inputs.of(part, context.claim))
        return Done(context.claim, part.gives.encode(result))

    def _own(self, context: TaskContext) -> Outcome:
        part, claim = context.part, context.claim
        self._inputs.check_kind(part, claim)
        if part.step.kind is StepKind.GENERATOR:
            return self._generator(context)
        if not is_behind_gate(claim):
            if not self._is_wanted(part, claim):
                return self._skip(context)
            context.pass_gate()
        if part.step.kind is StepKind.MAP:
            return Done(claim, "null")
        result = part.step.function(context, *self._inputs.of(part, claim))
        return Done(claim, part.gives.encode(result))

    def _generator(self, context: TaskContext) -> Outcome:
        part, claim = context.part, context.claim
        place = place_of(self._database, claim)
        if not is_behind_gate(claim, place):
            if not self._is_wanted(part, claim):
                return self._skip(context)
            context.pass_gate()
        generate(self._database, context, place, self._inputs.of(part, claim))
        return Settled(claim)

    def _is_wanted(self, part: Part, claim: Claim) -> bool:
        condition = part.step.gate.condition
        return condition is None or condition(*self._inputs.of(part, claim))

    def _skip(self, context: TaskContext) -> Outcome:
        return self._written(context, lambda c: flow_tasks.skip(c, context.claim))

    def _suspend(self, context: TaskContext, wait: Suspended) -> Outcome:
        return self._written(context, lambda c: wait.suspend(c, context.claim))

    def _written(self, context: TaskContext, write: Callable[[Connection], object]) -> Outcome:
        try:
            with ours():
                self._database.transact(write)
        except ClaimLost as lost:
            log.warning("%s", lost)
        except (TidegateError, StoreUnavailable):
            raise
        except Exception as error:  # noqa: BLE001  a bound that PostgreSQL cannot hold
            return failed(context, error)
        return Settled(context.claim)


def is_behind_gate(claim: Claim, place: GeneratorPlace | None = None) -> bool:
    """Whether a step was begun before: it waits inside of its function, or has yielded something.

    What has to hold before it begins need not hold any more.
    """
    if claim.wait_number is not None and claim.wait_number > GATE:
        return True
    return place is not None and (place.spawned > 0 or place.cursor is not None)


def failed(context: TaskContext, error: BaseException) -> Failed:
    """What an error means for a task: when it is tried again, if it may be."""
    chance = random.random()  # noqa: S311  jitter is no secret
    pause = trying_of(context).backoff.pause(max(1, context.attempt), chance)
    return Failed(context.claim, told(error), pause, is_final(error))


def is_final(error: BaseException) -> bool:
    """Whether the same attempt again would fail as well, as far as that is known."""
    is_mistake = isinstance(error, CutoverError) and not error.retryable
    return is_mistake or isinstance(error, FINAL)


def trying_of(context: TaskContext) -> Trying:
    """How a task is tried: as a handler says for items of a generator, else as its step."""
    part = context.part
    if context.position != OWN and part.handler is not None:
        return part.handler.trying
    return part.step.trying


def told(error: BaseException) -> str:
    """An error in one text that PostgreSQL can hold, with what it was raised from.

    >>> told(KeyError("price"))
    "KeyError: 'price'"
    """
    text = _named(error) + _place(error)
    if error.__cause__ is not None:
        text += f" (from {_named(error.__cause__)})"
    return storable(text, LONGEST)


def _place(error: BaseException) -> str:
    """Where the user's code was; what Tidegate raises says itself what it is about."""
    frames = [it for it in extract_tb(error.__traceback__) if not it.filename.startswith(ELSEWHERE)]
    if isinstance(error, TidegateError) or not frames:
        return ""
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})"


def _named(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as trouble:  # noqa: BLE001  whatever a user's error does when it is asked
        return f"{type(error).__name__}, which cannot be told: {type(trouble).__name__}"
