"""`tidegate flow run`, `list`, `show`: beginning and watching runs of flows, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from tidegate.cli.failing import told_errors
from tidegate.cli.finding import find_flow
from tidegate.cli.flow_telling import sentence, table, whole
from tidegate.cli.opening import AsJson, open_existing
from tidegate.cli.options import DatabaseUrl, ExistingDeployment
from tidegate.cli.tables import json_text
from tidegate.errors import InvalidJson

if TYPE_CHECKING:
    from tidegate.run.flows.sight import Sight
    from tidegate.store import Database
    from tidegate.store.flow_events import FlowWait

flow = typer.Typer(
    name="flow",
    help="Durable flows: work for them, begin runs, see how far they are, and steer them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

FlowName = Annotated[
    str, typer.Argument(metavar="FLOW", help="A flow, as package.module:attribute.")
]
RunNumber = Annotated[
    int, typer.Argument(metavar="RUN", help="The number of a run, as `flow list` shows it.")
]


@flow.command()
def run(  # noqa: PLR0913, PLR0917  every argument is an option of the command
    name: FlowName,
    deployment: ExistingDeployment,
    value: Annotated[
        str, typer.Option("--input", help="What the flow begins with, as JSON.", metavar="JSON")
    ] = "null",
    key: Annotated[
        str | None,
        typer.Option(help="Begin it once: the same key is the same run.", show_default=False),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has ended.")] = False,
    timeout: Annotated[
        float, typer.Option(min=0, help="Wait no longer than this many seconds.")
    ] = 3600.0,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Begin a run of a flow and say its number."""
    with told_errors(as_json=as_json):
        found = find_flow(name)
        with created(deployment, database) as opened:
            from tidegate.run import flows as running
            from tidegate.store.flows import flow_run

            given = found.definition.input.decode(json_given(value))
            number = running.begin(opened, found, given, key)
            if wait:
                watch_run(opened, number, timeout, quiet=as_json)
            begun = opened.transact(lambda c: flow_run(c, number))
            typer.echo(json_text(asdict(begun)) if as_json else sentence(begun))


@flow.command(name="list")
def list_(
    deployment: ExistingDeployment,
    name: Annotated[
        str | None, typer.Option("--flow", help="Of this flow only.", show_default=False)
    ] = None,
    most: Annotated[int, typer.Option(min=1, help="The latest so many.")] = 100,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the latest runs."""
    with told_errors(as_json=as_json), open_existing(deployment, database) as opened:
        from tidegate.store.flows import flow_runs

        runs = opened.transact(lambda c: flow_runs(c, name, most))
        typer.echo(json_text([asdict(it) for it in runs]) if as_json else table(runs))


@flow.command()
def show(
    run: RunNumber,
    deployment: ExistingDeployment,
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on showing it until it has ended.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=0, help="Watch no longer than this many seconds.")
    ] = 86_400.0,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Tell how far a run is: its steps, their items, its state, and what it waits for."""
    with told_errors(as_json=as_json), open_existing(deployment, database) as opened:
        from tidegate.run.flows.sight import see

        if watch:
            watch_run(opened, run, timeout, quiet=as_json)
        sight = see(opened, run)
        told = sentence(sight.run) if watch else whole(sight)
        typer.echo(json_text(_seen(sight)) if as_json else told)


def watch_run(database: Database, run: int, timeout: float, *, quiet: bool) -> None:
    """Show a run until it has ended; raises when it did not end well, or in time."""
    from tidegate.cli.flow_watching import watching
    from tidegate.run.flows import wait

    with watching(database, quiet=quiet) as look:
        wait(database, run, timeout, look=look)


def _seen(sight: Sight) -> dict[str, object]:
    return {
        "run": asdict(sight.run),
        "steps": [asdict(it) for it in sight.steps],
        "state": {key: asdict(value) for key, value in sight.state.items()},
        "waits": [_waited(it) for it in sight.waits],
        "awaited_signals": sight.signals,
        "at_work": [asdict(it) for it in sight.holdings],
    }


def _waited(wait: FlowWait) -> dict[str, object]:
    standing = wait.standing
    return {**asdict(wait), "behind": standing.behind if standing is not None else None}


@contextmanager
def created(deployment: Path, database: str | None) -> Iterator[Database]:
    """The database of a deployment, which need not have been there."""
    from tidegate.run.deployment import open_deployment

    with open_deployment(deployment, database) as place:
        yield place.database


def json_given(text: str) -> str:
    """The text, when it is JSON."""
    try:
        msgspec.json.decode(text)
    except msgspec.MsgspecError as error:
        raise InvalidJson(text, str(error)) from error
    return text
