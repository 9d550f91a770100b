"""Starts a pipeline run for a flow step and delivers its chunks.

The run has the plan that the pipeline is served with, so that its workers can process it. A step
that is retried delivers again what may be missing, which is harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import environ
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from tidegate.errors import (
    OtherPlan,
    PipelineServedOtherwise,
    SourcesNotGiven,
    UnknownSource,
    listed,
)
from tidegate.faults import crash_point
from tidegate.plan import physical_plan, plan_hash
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.ingestion.folder_run import ProgressListener, chunks_in, deliver_all
from tidegate.runtime.ingestion.run_service import RunService
from tidegate.runtime.task_graph import TaskGraph, build_task_graph
from tidegate.settings import Settings
from tidegate.spark import CheckerPool
from tidegate.store import RunState
from tidegate.store.flows import pipeline_links
from tidegate.store.runs import plans

if TYPE_CHECKING:
    from tidegate.flows.worker.pipeline_runs import PipelineRequest
    from tidegate.flows.worker.task_context import TaskContext
    from tidegate.pipeline import Pipeline
    from tidegate.spark import Session
    from tidegate.store import Database, Notifications, RunInfo


class _StopsWhenCancelled(ProgressListener):
    """Between two chunks, checks whether the task was cancelled."""

    def __init__(self, context: TaskContext) -> None:
        self._context = context

    def sent(self, chunks: int, of: int) -> None:
        self._context.check()


def submit(
    database: Database,
    root: str,
    notifications: Notifications,
    session: Callable[[], Session],
    context: TaskContext,
    request: PipelineRequest,
) -> None:
    """Start a run unless the task has one, deliver what is missing, and close its sources."""
    chunks = chunks_for(request)
    deployment = Deployment(database, root, Settings.from_environment(environ))
    checkers = CheckerPool(deployment.settings)
    task_graph = served_task_graph(database, request.pipeline)
    server = RunService(deployment, request.pipeline, task_graph, session, notifications, checkers)
    link = (context.claim, request.pipeline.name, request.run)
    submitted = database.transact(
        lambda c: pipeline_links.submit(
            c, *link, lambda c: server.begin_in(c, request.run, uuid4())
        )
    )
    crash_point("flow.submit.after_commit")
    if submitted.run.state is RunState.OPEN and not submitted.is_delivered:
        _refuse_other_plan(server, submitted.run, task_graph)
        with checkers:
            deliver_all(server, chunks, request.run, _StopsWhenCancelled(context))


def served_task_graph(database: Database, pipeline: Pipeline) -> TaskGraph:
    """The tasks of a pipeline as it was last served; as declared, if it never was.

    Raises `PipelineServedOtherwise` if another plan than the declared one was served.
    """
    served = database.transact(lambda c: plans.last_served_plan(c, pipeline.name))
    plan = physical_plan(pipeline, shards=served.shards if served else None)
    if served is not None and plan_hash(plan) != served.plan:
        raise PipelineServedOtherwise(pipeline.name, served.plan, plan_hash(plan))
    return build_task_graph(plan)


def chunks_for(request: PipelineRequest) -> dict[str, list[Path]]:
    """The chunks of each source: the files of its folder, or those given."""
    data, pipeline = request.data, request.pipeline
    if not isinstance(data, Mapping):
        return chunks_in(Path(data), pipeline)
    for source in data.keys() - pipeline.sources.keys():
        raise UnknownSource(source=source, known=", ".join(pipeline.sources))
    missing = [source for source in pipeline.sources if source not in data]
    if missing:
        raise SourcesNotGiven(pipeline.name, request.run, listed(missing))
    return {source: [Path(it) for it in data[source]] for source in pipeline.sources}


def _refuse_other_plan(server: RunService, run: RunInfo, task_graph: TaskGraph) -> None:
    """The channels of a run lead to the tasks of the plan that it was started with."""
    if not server.has_this_plan(run):
        raise OtherPlan(run.pipeline, plan_hash(task_graph.plan), run.name)
