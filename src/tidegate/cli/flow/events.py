"""`tidegate flow events`: the events of a run, for people and for log shippers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from tidegate.cli.arguments.deployments import open_existing
from tidegate.cli.arguments.options import DatabaseUrl, ExistingDeployment
from tidegate.cli.flow.render import on_one_line, render_event
from tidegate.cli.flow.run import RunNumber, flow
from tidegate.cli.output.error_output import printable, reported_errors
from tidegate.cli.output.tables import clock

if TYPE_CHECKING:
    from tidegate.store.flows.events import FlowEvent


@flow.command()
def events(
    run: RunNumber,
    deployment: ExistingDeployment,
    follow: Annotated[
        bool, typer.Option("--follow", help="Follow until the run has ended.")
    ] = False,
    after: Annotated[int, typer.Option(min=0, help="Only events after the one with this id.")] = 0,
    database: DatabaseUrl = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Print the events of a run: its states, steps, signals, state keys and waits."""
    with reported_errors(as_json=as_json), open_existing(deployment, database) as opened:
        from tidegate.flows.client import flow_run

        for event in flow_run(opened, run).events(after, follow=follow):
            typer.echo(_json(event) if as_json else _line(event))


def _line(event: FlowEvent) -> str:
    return printable(f"{clock(event.at)}  {on_one_line(render_event(event))}")


def _json(event: FlowEvent) -> str:
    return msgspec.json.encode(event).decode()
