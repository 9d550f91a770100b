"""`tidegate flow worker`: a process that performs the tasks of flows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.error_output import reported_errors
from tidegate.cli.flow.run import flow
from tidegate.cli.loader import find_flows
from tidegate.cli.logs import begin_log
from tidegate.cli.options import DatabaseUrl, ExistingDeployment
from tidegate.cli.process_commands import WithParent, process_name, run_role, stop_event

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
        typer.Option(min=0.5, help="Seconds after which a silent worker is taken for dead."),
    ] = 6.0,
    name: Annotated[
        str | None, typer.Option(help="What this process is called.", show_default=False)
    ] = None,
    metrics: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            metavar="PORT",
            show_default=False,
            help="Answer http://127.0.0.1:PORT/metrics for Prometheus.",
        ),
    ] = None,
    database: DatabaseUrl = None,
    with_parent: WithParent = False,
) -> None:
    """Perform the tasks of flows until interrupted.

    Any number of workers may work for the same flows. What one that dies had in hand is done by
    the others once its lease has expired; one that is interrupted finishes what is at work.
    """
    with reported_errors(as_json=False):
        stopped = stop_event(with_parent=with_parent)
        flows = [flow for it in names for flow in find_flows(it)]
        say = begin_log(is_kept=with_parent)
        from tidegate.flows.worker.role import FlowWorkerRole
        from tidegate.flows.worker.worker import FlowWorker
        from tidegate.runtime.deployment import open_deployment
        from tidegate.store import Notifications

        called = process_name(name, "flow-worker")
        with (
            open_deployment(deployment, database) as place,
            Notifications(place.database) as notifications,
            FlowWorker(
                place.database, flows, notifications, threads, lease, called, root=place.root
            ) as working,
            _metrics(place.database, metrics, say),
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
