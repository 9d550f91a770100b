"""`tidegate flow worker`: a process that executes the tasks of flows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.arguments.loader import find_flows
from tidegate.cli.arguments.options import DatabaseUrl, ExistingDeployment
from tidegate.cli.flow.run import flow
from tidegate.cli.output.error_output import reported_errors
from tidegate.cli.processes.logs import begin_log
from tidegate.cli.processes.process_commands import WithParent, process_name, run_role, stop_event

if TYPE_CHECKING:
    from tidegate.store import Database


@flow.command()
def worker(  # noqa: PLR0913, PLR0917  every argument is an option of the command
    names: Annotated[
        list[str],
        typer.Argument(metavar="FLOW...", help="Flows, as package.module:attribute, or modules."),
    ],
    deployment: ExistingDeployment,
    threads: Annotated[int, typer.Option(min=1, help="Handlers that run at the same time.")] = 8,
    lease: Annotated[
        float,
        typer.Option(min=0.5, help="Seconds without a heartbeat after which a worker has failed."),
    ] = 6.0,
    name: Annotated[
        str | None, typer.Option(help="The name of this process.", show_default=False)
    ] = None,
    metrics: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            metavar="PORT",
            show_default=False,
            help="Serve http://127.0.0.1:PORT/metrics for Prometheus.",
        ),
    ] = None,
    database: DatabaseUrl = None,
    with_parent: WithParent = False,
) -> None:
    """Execute the tasks of flows until interrupted.

    Any number of workers may serve the same flows. Tasks of a failed worker are executed by the
    others once its lease has expired; an interrupted worker finishes its tasks in flight.
    """
    with reported_errors(as_json=False):
        stopped = stop_event(with_parent=with_parent)
        flows = [flow for name_ in names for flow in find_flows(name_)]
        say = begin_log(is_kept=with_parent)
        from tidegate.flows.worker.role import FlowWorkerRole
        from tidegate.flows.worker.worker import FlowWorker
        from tidegate.runtime.deployment import open_deployment
        from tidegate.store import Notifications

        called = process_name(name, "flow-worker")
        with (
            open_deployment(deployment, database) as opened,
            Notifications(opened.database) as notifications,
            FlowWorker(
                opened.database, flows, notifications, threads, lease, called, root=opened.root
            ) as working,
            _metrics(opened.database, metrics, say),
        ):
            run_role(FlowWorkerRole(working), None, stopped, say)


@contextmanager
def _metrics(database: Database, port: int | None, say: Callable[[str], None]) -> Iterator[None]:
    if port is None:
        yield
        return
    from tidegate.flows.metrics import serve_metrics

    with serve_metrics(database, port) as found:
        say(f"metrics at http://127.0.0.1:{found}/metrics")
        yield
