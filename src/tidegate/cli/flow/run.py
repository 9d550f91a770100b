"""`tidegate flow run`, `list`, `show`: beginning and watching runs of flows, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from msgspec import to_builtins

from tidegate.cli.deployments import AsJson, open_existing
from tidegate.cli.error_output import reported_errors
from tidegate.cli.flow.output import ended
from tidegate.cli.flow.render import NO_WORKER, sentence, table, whole
from tidegate.cli.loader import find_flow
from tidegate.cli.options import DatabaseUrl, ExistingDeployment
from tidegate.cli.tables import json_text
from tidegate.errors import InvalidFlowInput, InvalidFlowValue, InvalidJson

if TYPE_CHECKING:
    from tidegate.flows.client import FlowRun
    from tidegate.flows.inspect import RunInspection
    from tidegate.flows.model.keys import StateValue
    from tidegate.store import Database
    from tidegate.store.flows.events import FlowWait

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
    with reported_errors(as_json=as_json):
        found = find_flow(name)
        with created(deployment, database) as opened:
            from tidegate.flows.client import start_flow

            with told_as_usage(found.name, value):
                given = found.definition.input.decode(json_given(value))
                started = start_flow(opened, found, given, key)
            if not as_json:
                _warn_without_workers(started)
            if wait:
                watch_run(started, timeout, quiet=as_json)
            info = started.status()
            told = sentence(info) if as_json or not wait else ended(opened, info)
            typer.echo(json_text(to_builtins(info)) if as_json else told)


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
    with reported_errors(as_json=as_json), open_existing(deployment, database) as opened:
        from tidegate.store.flows.runs import flow_runs

        runs = opened.transact(lambda c: flow_runs(c, name, most))
        typer.echo(json_text(to_builtins(runs)) if as_json else table(runs))


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
    with reported_errors(as_json=as_json), open_existing(deployment, database) as opened:
        from tidegate.flows.client import flow_run

        found = flow_run(opened, run)
        if watch:
            watch_run(found, timeout, quiet=as_json)
        sight = found.inspect()
        told = ended(opened, sight.run) if watch else whole(sight)
        typer.echo(json_text(_seen(sight)) if as_json else told)


def watch_run(run: FlowRun, timeout: float, *, quiet: bool) -> None:
    """Show a run until it has ended; raises when it did not end well, or in time."""
    from tidegate.cli.flow.watch import watching

    with watching(run, quiet=quiet) as look:
        run.wait(timeout, on_change=look)


def _seen(sight: RunInspection) -> dict[str, object]:
    return {
        "run": to_builtins(sight.run),
        "steps": to_builtins(sight.steps),
        "state": {key: _valued(value) for key, value in sight.state.items()},
        "waits": [_waited(it) for it in sight.waits],
        "awaited_signals": sight.signals,
        "at_work": to_builtins(sight.holdings),
        "ready_seconds": sight.ready,
        "workers": sight.workers,
    }


def _valued(stored: StateValue) -> dict[str, object]:
    told: dict[str, object] = to_builtins(stored)
    return {"value": _value(told.pop("json")), **told}


def _waited(wait: FlowWait) -> dict[str, object]:
    told: dict[str, object] = to_builtins(wait)
    standing = wait.standing
    if standing is None:
        return {**told, "behind": None}
    far = {
        **to_builtins(standing),
        "value": _value(standing.value),
        "target": _value(standing.target),
        "condition": {
            **to_builtins(standing.condition), "target": _value(standing.condition.target),
        },
    }  # fmt: skip
    return {**told, "standing": far, "behind": standing.behind}


def _value(text: object) -> object:
    """What is stored as JSON, as it is; what Python does not read, as it is written."""
    try:
        return None if text is None else json.loads(str(text))
    except ValueError:  # more digits than Python reads
        return text


def _warn_without_workers(run: FlowRun) -> None:
    from tidegate.store.flows.events import count_flow_workers

    if run.status().closed_at is None and run.database.transact(count_flow_workers) == 0:
        typer.echo(NO_WORKER, err=True)


@contextmanager
def created(deployment: Path, database: str | None) -> Iterator[Database]:
    """The database of a deployment, which need not have been there."""
    from tidegate.runtime.deployment import open_deployment

    with open_deployment(deployment, database) as place:
        yield place.database


@contextmanager
def told_as_usage(flow: str, given: str) -> Iterator[None]:
    """An input of another type is as wrong as one that is no JSON."""
    try:
        yield
    except InvalidFlowValue as error:
        raise InvalidFlowInput(flow, f"{given:.200}", error.reason) from error


def json_given(text: str) -> str:
    """The text, when it is JSON."""
    try:
        msgspec.json.decode(text)
    except msgspec.MsgspecError as error:
        raise InvalidJson(text, str(error)) from error
    return text
