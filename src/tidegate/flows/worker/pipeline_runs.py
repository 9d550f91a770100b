"""Pipeline runs of flow steps: started once, delivered, and waited for without holding a thread.

A step that calls `run_pipeline` starts a run that is linked to its task, delivers its chunks and is
suspended. When the run is closed the step is started again, finds the run by the link and
gets its results. The pipeline is served by other processes; a flow worker starts Spark only for
chunks that nothing else can read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from tidegate.errors import NowhereForChunks, PipelineNotReleased, PipelineRunTwice
from tidegate.faults import crash_point
from tidegate.flows.model.pipeline_result import Released
from tidegate.flows.worker.suspend import AwaitsPipeline
from tidegate.runtime.ingestion.run_state import raise_if_unsuccessful
from tidegate.runtime.monitor.diagnosis import why
from tidegate.store import RunState, results_of, run_facts
from tidegate.store.flows import pipeline_links

if TYPE_CHECKING:
    from tidegate.dataflow import Batch
    from tidegate.flows.model.context import Data
    from tidegate.flows.worker.task_context import TaskContext
    from tidegate.pipeline import Pipeline
    from tidegate.spark import Session
    from tidegate.store import Database, Notifications, RunFacts, RunInfo
    from tidegate.store.flows.pipeline_links import SubmittedRun

UNSERVED = "no process serves it: start `tidegate up` or `tidegate serve` for it on this deployment"


@dataclass(frozen=True, slots=True)
class PipelineRequest:
    """A pipeline run that a step requests."""

    pipeline: Pipeline
    run: str
    """The name of the run."""
    data: Data
    number: int
    """The number of this wait within the step."""
    timeout: float | None


class PipelineRuns:
    """Starts and awaits pipeline runs for the tasks of one worker."""

    def __init__(
        self,
        database: Database,
        root: str | None = None,
        notifications: Notifications | None = None,
    ) -> None:
        self._database = database
        self._root = root
        self._notifications = notifications
        self._opening = Lock()

    def released(self, context: TaskContext, request: PipelineRequest) -> Released:
        """The results of a run; while it is open, raises `AwaitsPipeline`."""
        _refuse_second(context, request)
        found = self._found(context, request)
        if found is None or found.is_spent(context.attempt) or _is_undelivered(found):
            found = self._submit(context, request)
        if found.run.state is RunState.OPEN:
            self._check_bound(context, request, found.run)
            context.before_write()
            crash_point("flow.submit.before_suspend")
            context.suspended = AwaitsPipeline(found.run, request.number, request.timeout)
            raise context.suspended
        raise_if_unsuccessful(found.run)
        return self._results(found.run)

    def _found(self, context: TaskContext, request: PipelineRequest) -> SubmittedRun | None:
        link = (context.claim, request.pipeline.name, request.run)
        return self._database.transact(lambda c: pipeline_links.submitted(c, *link))

    def _submit(self, context: TaskContext, request: PipelineRequest) -> SubmittedRun:
        """Start the run if there is none, and deliver what it has not received."""
        if self._root is None or self._notifications is None:
            raise NowhereForChunks(context.step, request.pipeline.name)
        # Imported here: workers that run no pipeline need not load the readers of chunks.
        from tidegate.flows.worker.pipeline_submit import submit

        submit(
            self._database, self._root, self._notifications, self._open_session, context, request
        )
        found = self._found(context, request)
        assert found is not None, "a submitted run is linked"
        return found

    def _results(self, run: RunInfo) -> Released:
        given = self._database.transact(lambda c: results_of(c, run))
        files = {sink: self._files(it.batches) for sink, it in given.items()}
        return Released(run.pipeline, run.name, {it: given[it].rows for it in given}, files)

    def _files(self, batches: Sequence[Batch]) -> list[str]:
        return [f"{self._root}/{file}" for batch in batches for file in batch.files]

    def _check_bound(self, context: TaskContext, request: PipelineRequest, run: RunInfo) -> None:
        waited = context.claim.waited if context.claim.wait_number == request.number else None
        if request.timeout is None or waited is None or waited < request.timeout:
            return
        facts = self._database.transact(lambda c: run_facts(c, run))
        reason = why_unreleased(facts)
        raise PipelineNotReleased(context.run, context.step, waited, run.pipeline, run.name, reason)

    def _open_session(self) -> Session:
        """The session of this process, which may be shared; it ends with the process."""
        from tidegate.spark import open_session

        with self._opening:
            return open_session()


def _refuse_second(context: TaskContext, request: PipelineRequest) -> None:
    """A step finds its runs by name alone, so two of one name would be the same."""
    name = request.pipeline.name, request.run
    if name in context.pipeline_runs:
        raise PipelineRunTwice(context.step, *name)
    context.pipeline_runs.add(name)


def _is_undelivered(found: SubmittedRun) -> bool:
    return found.run.state is RunState.OPEN and not found.is_delivered


def why_unreleased(facts: RunFacts) -> str:
    """Why a run is not released; first, if no process serves its pipeline."""
    is_served = any(it.name is not None and it.expires_in > 0 for it in facts.owners.values())
    return why(facts) if is_served else f"{UNSERVED}; {why(facts)}"


def run_name(flow: str, run: int, step: str, position: int, name: str) -> str:
    """The name of a task's pipeline run, unique to the task.

    >>> run_name("nightly", 12, "load", -1, ""), run_name("nightly", 12, "load", 3, "eu")
    ('flow:nightly/12/load', 'flow:nightly/12/load[3]/eu')
    """
    item = f"[{position}]" if position >= 0 else ""
    return f"flow:{flow}/{run}/{step}{item}" + (f"/{name}" if name else "")
