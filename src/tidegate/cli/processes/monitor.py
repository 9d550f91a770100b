"""`tidegate monitor`: monitors the runs of a pipeline, or is a standby for another monitor."""

from __future__ import annotations

from tidegate.cli.arguments.loader import find_pipeline
from tidegate.cli.arguments.options import DatabaseUrl, ExistingDeployment, PipelineArgument
from tidegate.cli.output.error_output import reported_errors
from tidegate.cli.processes.logs import begin_log
from tidegate.cli.processes.process_commands import (
    GroupAddress,
    ProcessName,
    WithParent,
    join_as_peer,
    process_name,
    refuse_taken_name,
    run_role,
    stop_event,
)


def monitor(
    pipeline: PipelineArgument,
    deployment: ExistingDeployment,
    name: ProcessName = None,
    group: GroupAddress = None,
    database: DatabaseUrl = None,
    with_parent: WithParent = False,
) -> None:
    """Run a monitor, which releases complete runs and enforces their deadlines; needs no Spark.

    Of several monitors one leads, under a lease. When it fails, another takes over.
    """
    with reported_errors(as_json=False):
        from tidegate.runtime.cluster.roles import MonitorRole
        from tidegate.runtime.deployment import open_deployment
        from tidegate.runtime.service import run_monitor
        from tidegate.store import Notifications

        stopped = stop_event(with_parent=with_parent)
        found = find_pipeline(pipeline)
        refuse_taken_name(deployment, group, name, with_parent=with_parent)
        called = process_name(name, "monitor")
        say = begin_log(is_kept=with_parent)
        with (
            open_deployment(deployment, database) as opened,
            Notifications(opened.database) as notifications,
            run_monitor(opened, found.name, notifications, called) as watch,
            join_as_peer(deployment, group, called) as peer,
        ):
            run_role(MonitorRole(watch), peer, stopped, say)
