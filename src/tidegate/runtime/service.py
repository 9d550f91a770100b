"""A pipeline served by this process: ingestion, worker, monitor and sweeper on one deployment.

Several processes may serve the same deployment: tasks and monitor run where their lease is held. A
process may also take a part: `serve_frontend` takes runs without a worker, `run_monitor` is a
monitor alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tidegate.errors import OtherPlan, SparkLost, UnknownStage, WorkerGaveUp, listed
from tidegate.plan import plan_hash
from tidegate.runtime.checkpoints.plan_compatibility import record_plan
from tidegate.runtime.file_storage import FileStorage
from tidegate.runtime.ingestion.run_service import RunService
from tidegate.runtime.jobs.processor_factory import SparkProcessorFactory
from tidegate.runtime.monitor.diagnosis import why_not_done
from tidegate.runtime.monitor.monitor import Monitor
from tidegate.runtime.monitor.sweeper import Sweeper
from tidegate.runtime.run import Run, ServedRun
from tidegate.runtime.task_graph import TaskGraph, build_task_graph
from tidegate.runtime.worker.isolated_trials import Trials
from tidegate.runtime.worker.task_worker import Worker
from tidegate.spark import CheckerPool, check, ended_under, ensure_fit, why_ended
from tidegate.store import Notifications, open_runs, plan_of

if TYPE_CHECKING:
    from tidegate.checkpoint import Checkpoints
    from tidegate.pipeline import Pipeline
    from tidegate.plan import PhysicalPlan
    from tidegate.runtime.deployment import Deployment
    from tidegate.spark import Checked, Schema, Session
    from tidegate.store import Connection, Database


@dataclass(frozen=True, repr=False)
class PipelineFrontend:
    """Takes runs of a pipeline: ingestion and monitor, without a worker."""

    checked: Checked
    task_graph: TaskGraph
    server: RunService
    notifications: Notifications
    monitor: Monitor
    session: Session
    root: str
    """The folder of all files of the deployment."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of pipeline {self.task_graph.name!r}>"

    def check(self) -> None:
        """Raise `SparkLost` or `WorkerGaveUp` if this process can no longer work."""
        loss = why_ended(self.session)
        if loss is not None:
            raise SparkLost(loss)
        name, monitor = self.task_graph.name, self.monitor
        if not monitor.is_alive:
            raise WorkerGaveUp(name, f"its monitor failed: {monitor.error!r}") from monitor.error

    def start(
        self,
        run: str,
        *,
        deadline: float | None = None,
        warn_after: float | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> Run:
        """Start a run under a name that no open run has.

        `deadline` and `warn_after` are seconds from now: the run fails, or a warning is logged,
        if it is not complete by then. Raises `RunExists`.
        """
        self.server.begin(run, deadline=deadline, warn_after=warn_after, checkpoints=checkpoints)
        return ServedRun(run, self, self.root)

    def run(self, name: str) -> Run:
        """The handle of a run that was started before; raises `UnknownRun`."""
        self.server.known(name)
        return ServedRun(name, self, self.root)

    def schema_of(self, sink: str) -> Schema:
        """The columns and types of a sink's result."""
        stages = self.checked.stages.values()
        return next(stage.output for stage in stages if stage.sink == sink)


@dataclass(frozen=True, repr=False)
class PipelineService(PipelineFrontend):
    """A pipeline with a worker in this process."""

    factory: SparkProcessorFactory
    worker: Worker

    def check(self) -> None:
        """Raise `SparkLost` or `WorkerGaveUp` if the worker or the monitor has stopped."""
        super().check()
        worker = self.worker
        if worker.error is not None:
            raise WorkerGaveUp(self.task_graph.name, str(worker.error)) from worker.error


@contextmanager
def serve_frontend(
    deployment: Deployment,
    pipeline: Pipeline,
    session: Session,
    shards: int | None = None,
    process: str = "",
) -> Iterator[PipelineFrontend]:
    """Take and monitor runs of a pipeline until the end of the block; workers are elsewhere.

    Spark checks the whole declaration first, so a wrong column is an error at the user's line
    before any data is read. The engine is checked, too, since it reads chunks.
    """
    checked = check(pipeline, session, shards=shards)
    ensure_fit(session, deployment.root, checked.stages)
    task_graph = build_task_graph(checked.plan)
    database = deployment.database
    _refuse_other_plans(database, checked.plan)
    database.transact(lambda c: record_plan(c, task_graph))
    with (
        CheckerPool(deployment.settings) as checkers,
        Notifications(database) as notifications,
        run_monitor(deployment, task_graph.name, notifications, process) as monitor,
    ):
        checkers.warm()
        server = RunService(
            deployment, pipeline, task_graph, lambda: session, notifications, checkers
        )
        with server.injection:
            yield PipelineFrontend(
                checked, task_graph, server, notifications, monitor, session, deployment.root
            )


@contextmanager
def serve(
    deployment: Deployment,
    pipeline: Pipeline,
    session: Session,
    shards: int | None = None,
    stages: Sequence[str] = (),
    process: str = "",
) -> Iterator[PipelineService]:
    """Take, monitor and process runs of a pipeline until the end of the block.

    With `stages`, work on those of the plan only; others have to do the rest. What the `process`
    is called helps people to see whose a task is.
    """
    with ExitStack() as at_work:
        front = at_work.enter_context(
            serve_frontend(deployment, pipeline, session, shards, process)
        )
        its_end = partial(why_ended, session), partial(ended_under, session)
        trials = Trials(deployment.database, *its_end)
        factory = SparkProcessorFactory(front.checked, session, deployment.root, trials)
        at_work.callback(factory.close)
        _refuse_unknown(front.task_graph, stages)
        worker = at_work.enter_context(
            Worker(
                deployment.database,
                front.task_graph,
                factory,
                front.notifications,
                deployment.settings,
                stages=stages,
                process=process,
            )
        )
        at_work.enter_context(Sweeper(deployment))
        yield PipelineService(**vars(front), factory=factory, worker=worker)


@contextmanager
def run_monitor(
    deployment: Deployment, pipeline: str, notifications: Notifications, process: str = ""
) -> Iterator[Monitor]:
    """Watch the runs of a pipeline, or stand by while another does."""
    explain, checksum = (
        partial(why_not_done, deployment.database),
        FileStorage(deployment.root).checksum,
    )
    with Monitor(
        deployment.database,
        pipeline,
        notifications,
        explain,
        checksum,
        deployment.settings,
        process,
    ) as monitor:
        yield monitor


def _refuse_unknown(task_graph: TaskGraph, stages: Sequence[str]) -> None:
    known = [node.id for node in task_graph.plan.nodes]
    for stage in stages:
        if stage not in known:
            raise UnknownStage(stage, task_graph.name, listed(known, most=100))


def _refuse_other_plans(database: Database, plan: PhysicalPlan) -> None:
    """The channels of an open run lead from task to task of the plan that it was started with."""
    ours = plan_hash(plan)

    def others(connection: Connection) -> list[str]:
        runs = open_runs(connection, plan.pipeline)
        return [run.name for run in runs if plan_of(connection, run) != ours]

    found = database.transact(others)
    if found:
        raise OtherPlan(plan.pipeline, ours, listed(found))
