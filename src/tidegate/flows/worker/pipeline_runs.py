"""Runs of pipelines for steps of flows: begun once, delivered, waited for without holding anything.

A step that calls `run_pipeline` begins a run that is linked to its task, delivers what the run has
not got, and is put aside. When the run is closed the step is begun again, finds its run by the
link, and is told what became of it. Others serve the pipeline; here is no Spark, unless a chunk is
of a kind that only Spark can read.
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
    from tidegate.store import Database, Notifications, Run, RunFacts
    from tidegate.store.flows.pipeline_links import Submitted

UNSERVED = "nobody serves it: start `tidegate up` or `tidegate serve` for it on this deployment"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a step wants of a pipeline."""

    pipeline: Pipeline
    run: str
    """The name of the run."""
    data: Data
    number: int
    """Which of the step's waits this is."""
    timeout: float | None


class Pipelines:
    """Runs pipelines for the tasks of one worker."""

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

    def released(self, context: TaskContext, wanted: Wanted) -> Released:
        """What a run gave; until it is closed, raises `AwaitsPipeline`."""
        _refuse_second(context, wanted)
        found = self._found(context, wanted)
        if found is None or found.is_spent(context.attempt) or _owes(found):
            found = self._submit(context, wanted)
        if found.run.state is RunState.OPEN:
            self._check_bound(context, wanted, found.run)
            context.before_write()
            crash_point("flow.submit.before_suspend")
            context.suspended = AwaitsPipeline(found.run, wanted.number, wanted.timeout)
            raise context.suspended
        raise_if_unsuccessful(found.run)
        return self._results(found.run)

    def _found(self, context: TaskContext, wanted: Wanted) -> Submitted | None:
        its = (context.claim, wanted.pipeline.name, wanted.run)
        return self._database.transact(lambda c: pipeline_links.submitted(c, *its))

    def _submit(self, context: TaskContext, wanted: Wanted) -> Submitted:
        """Begin what there is not, and deliver what it has not got."""
        if self._root is None or self._notifications is None:
            raise NowhereForChunks(context.step, wanted.pipeline.name)
        # Whoever never runs a pipeline need not load what reads chunks.
        from tidegate.flows.worker.pipeline_submit import submit

        submit(self._database, self._root, self._notifications, self._open_session, context, wanted)
        found = self._found(context, wanted)
        assert found is not None, "what was submitted is linked"
        return found

    def _results(self, run: Run) -> Released:
        given = self._database.transact(lambda c: results_of(c, run))
        files = {sink: self._files(it.batches) for sink, it in given.items()}
        return Released(run.pipeline, run.name, {it: given[it].rows for it in given}, files)

    def _files(self, batches: Sequence[Batch]) -> list[str]:
        return [f"{self._root}/{file}" for batch in batches for file in batch.files]

    def _check_bound(self, context: TaskContext, wanted: Wanted, run: Run) -> None:
        waited = context.claim.waited if context.claim.wait_number == wanted.number else None
        if wanted.timeout is None or waited is None or waited < wanted.timeout:
            return
        facts = self._database.transact(lambda c: run_facts(c, run))
        told = run.pipeline, run.name, why_unreleased(facts)
        raise PipelineNotReleased(context.run, context.step, waited, *told)

    def _open_session(self) -> Session:
        """The session of this process, which may be somebody else's: it ends with the process."""
        from tidegate.spark import open_session

        with self._opening:
            return open_session()


def _refuse_second(context: TaskContext, wanted: Wanted) -> None:
    """What a step has begun is found by name alone, so two of one name would be the same."""
    asked = wanted.pipeline.name, wanted.run
    if asked in context.pipeline_runs:
        raise PipelineRunTwice(context.step, *asked)
    context.pipeline_runs.add(asked)


def _owes(found: Submitted) -> bool:
    return found.run.state is RunState.OPEN and not found.is_delivered


def why_unreleased(facts: RunFacts) -> str:
    """Why a run is not done, and first of all if nobody is there to do it."""
    is_served = any(it.name is not None and it.expires_in > 0 for it in facts.owners.values())
    return why(facts) if is_served else f"{UNSERVED}; {why(facts)}"


def run_name(flow: str, run: int, step: str, position: int, name: str) -> str:
    """What the run of a pipeline is called that a task begins: no other task's is called so.

    >>> run_name("nightly", 12, "load", -1, ""), run_name("nightly", 12, "load", 3, "eu")
    ('flow:nightly/12/load', 'flow:nightly/12/load[3]/eu')
    """
    item = f"[{position}]" if position >= 0 else ""
    return f"flow:{flow}/{run}/{step}{item}" + (f"/{name}" if name else "")
