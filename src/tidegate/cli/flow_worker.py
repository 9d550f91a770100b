"""`tidegate flow worker`: a process that performs the tasks of flows."""

from __future__ import annotations

from typing import Annotated

import typer

from tidegate.cli.failing import told_errors
from tidegate.cli.finding import find_flows
from tidegate.cli.flow import flow
from tidegate.cli.logs import begin_log
from tidegate.cli.options import DatabaseUrl, ExistingDeployment
from tidegate.cli.post import WithParent, process_name, stand_and_tell, told_to_stop


@flow.command()
def worker(
    names: Annotated[
        list[str],
        typer.Argument(metavar="FLOW...", help="Flows, as package.module:attribute, or modules."),
    ],
    deployment: ExistingDeployment,
    threads: Annotated[int, typer.Option(min=1, help="Handlers that run at the same time.")] = 8,
    lease: Annotated[
        float,
        typer.Option(min=0.5, help="Seconds after which a silent worker is taken for dead."),
    ] = 6.0,
    name: Annotated[
        str | None, typer.Option(help="What this process is called.", show_default=False)
    ] = None,
    database: DatabaseUrl = None,
    with_parent: WithParent = False,
) -> None:
    """Perform the tasks of flows until interrupted.

    Any number of workers may work for the same flows. What one that dies had in hand is done by
    the others once its lease has expired; one that is interrupted finishes what is at work.
    """
    with told_errors(as_json=False):
        stopped = told_to_stop(with_parent=with_parent)
        flows = [flow for it in names for flow in find_flows(it)]
        say = begin_log(is_kept=with_parent)
        from tidegate.run.deployment import open_deployment
        from tidegate.run.flows import FlowWorker
        from tidegate.run.flows.duty import WorkingForFlows
        from tidegate.store import Wakeups

        called = process_name(name, "flow-worker")
        with (
            open_deployment(deployment, database) as place,
            Wakeups(place.database) as wakeups,
            FlowWorker(place.database, flows, wakeups, threads, lease, called) as working,
        ):
            stand_and_tell(WorkingForFlows(working), None, stopped, say)
