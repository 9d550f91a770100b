"""`tidegate flow run`, `list`, `show`: starts and inspects flow runs, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from msgspec import to_builtins

from tidegate.cli.arguments.deployments import AsJson, open_existing
from tidegate.cli.arguments.loader import find_flow
from tidegate.cli.arguments.options import DatabaseUrl, ExistingDeployment
from tidegate.cli.flow.output import ended
from tidegate.cli.flow.render import NO_WORKER, sentence, table, whole
from tidegate.cli.output.error_output import reported_errors
from tidegate.cli.output.tables import json_text
from tidegate.errors import InvalidFlowInput, InvalidFlowValue, InvalidJson

if TYPE_CHECKING:
    from tidegate.flows.client import FlowRun
    from tidegate.flows.inspect import RunInspection
    from tidegate.flows.model.keys import StateValue
    from tidegate.store import Database
    from tidegate.store.flows.events import FlowWait

flow = typer.Typer(
    name="flow",
    help="Durable flows: run workers, start runs, inspect and control them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

FlowName = Annotated[
    str, typer.Argument(metavar="FLOW", help="A flow, as package.module:attribute.")
]
RunNumber = Annotated[
    int, typer.Argument(metavar="RUN", help="The id of a run, as `flow list` shows it.")
]


@flow.command()
def run(  # noqa: PLR0913, PLR0917  every argument is an option of the command
    name: FlowName,
    deployment: ExistingDeployment,
    value: Annotated[
        str, typer.Option("--input", help="The input of the flow, as JSON.", metavar="JSON")
    ] = "null",
    key: Annotated[
        str | None,
        typer.Option(help="Start it once: the same key is the same run.", show_default=False),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has ended.")] = False,
    timeout: Annotated[
        float, typer.Option(min=0, help="Wait no longer than this many seconds.")
    ] = 3600.0,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Start a run of a flow and print its id."""
    with reported_errors(as_json=as_json):
        found = find_flow(name)
        with created(deployment, database) as opened:
            from tidegate.flows.client import start_flow

            with as_usage_error(found.name, value):
                input_ = found.definition.input.decode(checked_json(value))
                started = start_flow(opened, found, input_, key)
            if not as_json:
                _warn_without_workers(started)
            if wait:
                watch_run(started, timeout, quiet=as_json)
            info = started.status()
            text = sentence(info) if as_json or not wait else ended(opened, info)
            typer.echo(json_text(to_builtins(info)) if as_json else text)


@flow.command(name="list")
def list_(
    deployment: ExistingDeployment,
    name: Annotated[
        str | None, typer.Option("--flow", help="Only runs of this flow.", show_default=False)
    ] = None,
    most: Annotated[int, typer.Option(min=1, help="At most this many.")] = 100,
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
    watch: Annotated[bool, typer.Option("--watch", help="Watch it until it has ended.")] = False,
    timeout: Annotated[
        float, typer.Option(min=0, help="Watch no longer than this many seconds.")
    ] = 86_400.0,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show a run: its steps and their items, its state keys, and what it waits for."""
    with reported_errors(as_json=as_json), open_existing(deployment, database) as opened:
        from tidegate.flows.client import flow_run

        found = flow_run(opened, run)
        if watch:
            watch_run(found, timeout, quiet=as_json)
        inspection = found.inspect()
        text = ended(opened, inspection.run) if watch else whole(inspection)
        typer.echo(json_text(_as_json(inspection)) if as_json else text)


def watch_run(run: FlowRun, timeout: float, *, quiet: bool) -> None:
    """Show a run until it has ended; raises when it did not end well, or in time."""
    from tidegate.cli.flow.watch import watching

    with watching(run, quiet=quiet) as look:
        run.wait(timeout, on_change=look)


def _as_json(inspection: RunInspection) -> dict[str, object]:
    return {
        "run": to_builtins(inspection.run),
        "steps": to_builtins(inspection.steps),
        "state": {key: _state_json(value) for key, value in inspection.state.items()},
        "waits": [_wait_json(it) for it in inspection.waits],
        "awaited_signals": inspection.signals,
        "in_flight": to_builtins(inspection.in_flight),
        "ready_seconds": inspection.ready,
        "workers": inspection.workers,
    }


def _state_json(stored: StateValue) -> dict[str, object]:
    fields: dict[str, object] = to_builtins(stored)
    return {"value": _value(fields.pop("json")), **fields}


def _wait_json(wait: FlowWait) -> dict[str, object]:
    fields: dict[str, object] = to_builtins(wait)
    standing = wait.standing
    if standing is None:
        return {**fields, "behind": None}
    progress = {
        **to_builtins(standing),
        "value": _value(standing.value),
        "target": _value(standing.target),
        "condition": {
            **to_builtins(standing.condition), "target": _value(standing.condition.target),
        },
    }  # fmt: skip
    return {**fields, "standing": progress, "behind": standing.behind}


def _value(text: object) -> object:
    """A stored JSON value; its text if Python cannot read it."""
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
    """The database of a deployment, which is created if it does not exist."""
    from tidegate.runtime.deployment import open_deployment

    with open_deployment(deployment, database) as opened:
        yield opened.database


@contextmanager
def as_usage_error(flow: str, text: str) -> Iterator[None]:
    """Report an input of the wrong type as a usage error, like invalid JSON."""
    try:
        yield
    except InvalidFlowValue as error:
        raise InvalidFlowInput(flow, f"{text:.200}", error.reason) from error


def checked_json(text: str) -> str:
    """The text, if it is JSON."""
    try:
        msgspec.json.decode(text)
    except msgspec.MsgspecError as error:
        raise InvalidJson(text, str(error)) from error
    return text
