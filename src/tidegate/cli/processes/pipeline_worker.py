"""`tidegate worker`: runs tasks of a pipeline."""

from __future__ import annotations

import os

from tidegate.cli.arguments.loader import find_pipeline
from tidegate.cli.arguments.options import (
    DatabaseUrl,
    ExistingDeployment,
    GivenSettings,
    PipelineArgument,
    ShardCount,
    SparkCores,
    SparkMaster,
)
from tidegate.cli.output.error_output import reported_errors
from tidegate.cli.processes.logs import begin_log
from tidegate.cli.processes.process_commands import (
    GroupAddress,
    ProcessName,
    Stages,
    WithParent,
    join_as_peer,
    listed_stages,
    process_name,
    refuse_taken_name,
    run_role,
    stop_event,
)
from tidegate.permissions import PRIVATE
from tidegate.settings import set_in_environment


def worker(  # noqa: PLR0913, PLR0917  every argument is an option of the command
    pipeline: PipelineArgument,
    deployment: ExistingDeployment,
    name: ProcessName = None,
    group: GroupAddress = None,
    database: DatabaseUrl = None,
    shards: ShardCount = None,
    spark: SparkMaster = "local[*]",
    cores: SparkCores = None,
    given: GivenSettings = None,
    stages: Stages = None,
    with_parent: WithParent = False,
) -> None:
    """Run a worker, which processes tasks of a pipeline until interrupted.

    Several workers share the tasks evenly. An interrupted worker finishes running jobs and hands
    its tasks over; the tasks of a worker that fails go to the others within seconds.
    """
    with reported_errors(as_json=False):
        from tidegate.runtime.cluster.roles import WorkerRole
        from tidegate.runtime.deployment import open_deployment
        from tidegate.runtime.service import serve
        from tidegate.spark import session_on

        stopped = stop_event(with_parent=with_parent)
        os.umask(PRIVATE)
        set_in_environment(os.environ, given or ())
        found = find_pipeline(pipeline)
        refuse_taken_name(deployment, group, name, with_parent=with_parent)
        called = process_name(name, "worker")
        say = begin_log(is_kept=with_parent)
        with (
            open_deployment(deployment, database) as opened,
            session_on(spark, cores) as session,
            serve(opened, found, session, shards, listed_stages(stages), called) as service,
            join_as_peer(deployment, group, called) as peer,
        ):
            run_role(WorkerRole(service), peer, stopped, say)
