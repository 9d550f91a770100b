"""Performing a task: its function is called, and what came of it is said.

What it gives is completed with others in a batch (`results`). Waiting, skipping and generating are
written here, for they are rare.
"""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.errors import (
    ClaimLost,
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
from tidegate.flows.steps import StepKind
from tidegate.run.flows.generating import generate
from tidegate.run.flows.inputs import Inputs
from tidegate.run.flows.parking import Parked
from tidegate.store import flow_tasks
from tidegate.store.flow_tasks import OWN

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.flows.steps import Trying
    from tidegate.run.flows.context import TaskContext
    from tidegate.store import Connection, Database
    from tidegate.store.flow_tasks import Claim

log = logging.getLogger(__name__)

FINAL = (
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


class Performer:
    """Performs tasks of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._inputs = Inputs(database)

    def perform(self, context: TaskContext) -> Outcome:
        """Call the function of a task; raises only what keeps it from saying what came of it."""
        outcome = self._attempt(context)
        # Whoever swallowed the end of its attempt at a wait has not waited.
        return outcome if context.parked is None else self._park(context, context.parked)

    def _attempt(self, context: TaskContext) -> Outcome:
        claim = context.claim
        try:
            context.check()
            return self._own(context) if claim.position == OWN else self._item(context)
        except Parked:
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
        condition = part.step.gate.condition
        if condition is not None and not condition(*self._inputs.of(part, claim)):
            return self._written(context, lambda c: flow_tasks.skip(c, claim))
        context.pass_gate()
        if part.step.kind is StepKind.MAP:
            return Done(claim, "null")
        arguments = self._inputs.of(part, claim)
        if part.step.kind is StepKind.GENERATOR:
            generate(self._database, context, arguments)
            return Settled(claim)
        result = part.step.function(context, *arguments)
        return Done(claim, part.gives.encode(result))

    def _park(self, context: TaskContext, wait: Parked) -> Outcome:
        return self._written(context, lambda c: wait.park(c, context.claim))

    def _written(self, context: TaskContext, write: Callable[[Connection], object]) -> Outcome:
        try:
            self._database.transact(write)
        except ClaimLost as lost:
            log.warning("%s", lost)
        except TidegateError:
            raise
        except Exception as error:  # noqa: BLE001  a bound that PostgreSQL cannot hold
            return failed(context, error)
        return Settled(context.claim)


def failed(context: TaskContext, error: BaseException) -> Failed:
    """What an error means for a task: when it is tried again, if it may be."""
    chance = random.random()  # noqa: S311  jitter is no secret
    pause = trying_of(context).backoff.pause(max(1, context.attempt), chance)
    return Failed(context.claim, told(error), pause, isinstance(error, FINAL))


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
    text = _named(error)
    if error.__cause__ is not None:
        text += f" (from {_named(error.__cause__)})"
    storable = text.encode(errors="backslashreplace").decode()
    return storable.replace("\0", "\\0")[:LONGEST]


def _named(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as trouble:  # noqa: BLE001  whatever a user's error does when it is asked
        return f"{type(error).__name__}, which cannot be told: {type(trouble).__name__}"
