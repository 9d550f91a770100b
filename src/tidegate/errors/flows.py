"""Errors of runs of flows: unknown runs, lost claims, refused values, failures."""

from __future__ import annotations

from tidegate.errors.base import TidegateError
from tidegate.errors.store import StoreError
from tidegate.errors.usage import UsageError


class UnknownFlow(UsageError):
    """No flow is found under what the user gave as its name."""

    message = "there is no flow {flow!r}: {reason}. Write package.module:attribute."

    flow: str
    reason: str


class InvalidJson(UsageError):
    """A value on the command line that is no JSON."""

    message = "{given!r} is not JSON ({reason}); texts are written with quotes, as '\"text\"'"

    given: str
    reason: str


class InvalidFlowInput(UsageError):
    """What a run was to begin with on the command line, and is not of the flow's type."""

    message = "flow {flow!r} cannot begin with {given}: {reason}"

    flow: str
    given: str
    reason: str


class InvalidRunKey(UsageError):
    """What was given as the key of a run cannot be one."""

    message = "a run of flow {flow!r} cannot have the key {key}: {reason}"

    flow: str
    key: str
    reason: str


class FlowError(TidegateError):
    """A run of a flow cannot do what was asked."""


class UnknownFlowRun(FlowError):
    """There is no such run of a flow."""

    message = "there is no run {run!r} of a flow; `tidegate flow list` shows them"

    run: int | str


class FlowInputDiffers(FlowError):
    """The run of this key was started with another input."""

    message = (
        "run {run} of flow {flow!r} has the key {key!r} and was started with another input; no run"
        " was started. Give the same input, or another key"
    )

    run: int
    flow: str
    key: str


class UnknownRunStep(FlowError):
    """A run of a flow has no step of this name."""

    message = "run {run} has no step {step!r}; its steps are: {known}"

    run: int
    step: str
    known: str


class StepNotCompleted(FlowError):
    """The result of a step was requested, and the step has not completed."""

    message = (
        "step {step!r} of run {run} is {state}, so it has no result; `tidegate flow show {run}`"
    )

    run: int
    step: str
    state: str


class FlowRunClosed(FlowError):
    """An operation on a run that has ended or is being canceled."""

    message = "run {run} is {state}, so {wanted} is not possible any more"

    run: int
    state: str
    wanted: str


class FlowRedefined(FlowError):
    """A run was started with another declaration of its flow, so that a step does not fit it."""

    message = (
        "step {step!r} does not fit run {run}, which was started with another"
        " declaration of the flow: {reason}. Start a worker with that declaration and retry the"
        " run, or cancel it; give a flow with such changes another name"
    )

    run: int
    step: str
    reason: str


class InvalidFlowValue(FlowError):
    """A value that is not of the type that was declared for it."""

    message = "{value} does not have the declared type of {of}: {reason}"

    of: str
    value: str
    reason: str


class SpawnRefused(FlowError):
    """Items arrived after their generator had ended, or in another number than declared."""

    message = "items of step {step!r} of run {run} are refused: {reason}. Nothing was written"

    run: int
    step: str
    reason: str


class StateRegressed(FlowError):
    """A monotonic state key would have decreased."""

    message = (
        "state {key!r} of run {run} is monotonic: it is {current}, written by {writer}, and"
        " cannot decrease to {value}. Nothing was written"
    )

    run: int
    key: str
    value: str
    current: str
    writer: str


class StateUndeclared(FlowError):
    """A step read or wrote a state key that it had not declared."""

    message = "{who} may not {action} the state {key!r}: it did not declare that"

    who: str
    action: str
    key: str


class StateNeverCame(FlowError):
    """A wait for a flow's state has reached its bound."""

    message = (
        "step {step!r} of run {run} has waited {seconds:.1f} s for the state {key!r}, which is"
        " {value}, last written by {writer}{ago}{distance}"
    )

    run: int
    step: str
    seconds: float
    key: str
    value: str
    writer: str
    age: float | None = None
    """Seconds since the key was written."""
    missing: tuple[str, ...] = ()
    """How far each condition of a declared gate is that does not hold."""

    def __str__(self) -> str:
        ago = "" if self.age is None else f" {self.age:,.1f} s ago"
        distance = f": {'; '.join(self.missing)}" if self.missing else ""
        return self.message.format_map({**vars(self), "ago": ago, "distance": distance})


class PipelineNotReleased(FlowError):
    """The timeout of a step that waits for a pipeline run has passed; the run is canceled."""

    message = (
        "step {step!r} of run {run} has waited {waited:,.1f} s for run {pipeline_run!r} of pipeline"
        " {pipeline!r}, which is not released: {reason}"
    )

    run: int
    step: str
    waited: float
    pipeline: str
    pipeline_run: str
    reason: str


class PipelineServedOtherwise(FlowError):
    """A pipeline is served with another declaration than the worker of a flow has."""

    retryable = True
    message = (
        "pipeline {pipeline!r} is served with plan {served:.12}, and here it has plan {plan:.12}:"
        " restart the process with the older declaration"
    )

    pipeline: str
    served: str
    plan: str


class SourcesNotGiven(FlowError):
    """Chunks of a pipeline run were given for some of its sources only."""

    message = (
        "run {pipeline_run!r} of pipeline {pipeline!r} was given no chunks of {sources}; name them,"
        " with an empty list for a source that has none"
    )

    pipeline: str
    pipeline_run: str
    sources: str


class PipelineRunTwice(FlowError):
    """A step runs a pipeline twice under one name, so the second would be the first."""

    message = (
        "step {step!r} runs pipeline {pipeline!r} twice as {pipeline_run!r}; distinguish the two"
        " with name=…"
    )

    step: str
    pipeline: str
    pipeline_run: str


class NowhereForChunks(FlowError):
    """A step runs a pipeline, and its worker does not know where the deployment's files are."""

    message = (
        "step {step!r} cannot deliver to pipeline {pipeline!r}: its worker does not know where the"
        " files of the deployment are. Use `tidegate flow worker`, or give the worker root=…"
    )

    step: str
    pipeline: str


class CursorRefused(FlowError):
    """A step that is not a generator saves a cursor."""

    message = "step {step!r} of run {run} saves a cursor, which only generators can do"

    run: int
    step: str


class SignalRefused(FlowError):
    """A signal that no step waits for, or another value than the first."""

    message = "step {step!r} of run {run} does not take this signal: {reason}"

    run: int
    step: str
    reason: str


class NoStepWithItems(FlowError):
    """A run has no such step, or one that has no items."""

    message = (
        "run {run} has no step {step!r} with items; `tidegate flow show {run}` lists its steps"
    )

    run: int
    step: str


class StepTimedOut(FlowError):
    """A handler took longer than its step allows."""

    retryable = True
    message = "step {step!r} of run {run} took longer than its {seconds:g} s"

    run: int
    step: str
    seconds: float


class FinalFailure(FlowError):
    """Raised by a function of a flow: another attempt would fail as well."""

    message = "{reason}"

    reason: str


class FlowCancelled(FlowError):
    """Raised in a handler whose result is no longer needed."""

    message = "step {step!r} of run {run} is cancelled: {reason}"

    run: int
    step: str
    reason: str


class FlowFailed(FlowError):
    """A run of a flow has failed or was cancelled; the first cause is kept."""

    message = "run {run} of flow {flow!r} is {state}: {cause}"

    run: int
    flow: str
    state: str
    cause: str


class FlowTimeout(FlowError):
    """A run of a flow did not end within the timeout."""

    retryable = True
    message = (
        "run {run} of flow {flow!r} is {state} after {seconds:g} s; `tidegate flow show {run}`"
    )

    run: int
    flow: str
    state: str
    seconds: float


class ClaimLost(StoreError):
    """A worker wrote for a task whose claim it has lost; nothing changed."""

    run: int
    step: str
    position: int
    owner: str
    epoch: int
    holder: str
    current: int
    message = (
        "{owner} does not hold task {step}[{position}] of run {run} under epoch {epoch} any more:"
        " it is at epoch {current} and {holder}. Nothing was written"
    )
