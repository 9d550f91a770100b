"""`tidegate flow …`: beginning, watching and steering runs of durable flows, without Spark."""

from __future__ import annotations

import getpass
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from tidegate.cli.failing import printable, told_errors
from tidegate.cli.finding import find_flow
from tidegate.cli.opening import AsJson, open_existing
from tidegate.cli.options import DatabaseUrl, ExistingDeployment
from tidegate.cli.tables import aligned, clock, json_text
from tidegate.errors import InvalidJson

if TYPE_CHECKING:
    from tidegate.flows.keys import StateValue
    from tidegate.store import Database
    from tidegate.store.flows import FlowRun, StepProgress

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
LAST_ERROR = 100
"""Characters of an error in a table."""


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
        with _created(deployment, database) as opened:
            from tidegate.run import flows as running
            from tidegate.store.flows import flow_run

            given = found.definition.input.decode(_json(value))
            number = running.begin(opened, found, given, key)
            if wait:
                running.wait(opened, number, timeout)
            begun = opened.transact(lambda c: flow_run(c, number))
            typer.echo(json_text(asdict(begun)) if as_json else _sentence(begun))


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
        typer.echo(json_text([asdict(it) for it in runs]) if as_json else _table(runs))


@flow.command()
def show(
    run: RunNumber,
    deployment: ExistingDeployment,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Tell how far a run is: its steps, their items, and its state."""
    with told_errors(as_json=as_json), open_existing(deployment, database) as opened:
        from tidegate.store.flows import flow_progress, flow_run, flow_state

        found = opened.transact(lambda c: flow_run(c, run))
        steps = opened.transact(lambda c: flow_progress(c, run))
        _, state = opened.transact(lambda c: flow_state(c, run))
        if as_json:
            whole = {"run": asdict(found), "steps": [asdict(it) for it in steps]}
            told = {key: asdict(value) for key, value in state.items()}
            typer.echo(json_text({**whole, "state": told}))
        else:
            typer.echo(printable("\n".join(_shown(found, steps, state))))


@flow.command()
def signal(
    run: RunNumber,
    step: Annotated[str, typer.Argument(metavar="STEP", help="The step that waits for it.")],
    value: Annotated[str, typer.Argument(metavar="JSON", help="What it is to be given.")],
    deployment: ExistingDeployment,
    database: DatabaseUrl = None,
) -> None:
    """Give a step the signal that it waits for."""
    with told_errors(as_json=False), open_existing(deployment, database) as opened:
        from tidegate.store.flows import signal_flow

        text = _json(value)
        opened.transact(lambda c: signal_flow(c, run, step, text, getpass.getuser()))
        typer.echo(f"step {step!r} of run {run} has its signal")


@flow.command()
def cancel(
    run: RunNumber,
    deployment: ExistingDeployment,
    reason: Annotated[str, typer.Option(help="Why, for whoever looks at it later.")] = "cancelled",
    database: DatabaseUrl = None,
) -> None:
    """Give a run up; what is at work is told, and nothing else is begun."""
    with told_errors(as_json=False), open_existing(deployment, database) as opened:
        from tidegate.store.flows import cancel_flow, flow_run

        opened.transact(lambda c: cancel_flow(c, run, reason))
        typer.echo(_sentence(opened.transact(lambda c: flow_run(c, run))))


@flow.command()
def pause(run: RunNumber, deployment: ExistingDeployment, database: DatabaseUrl = None) -> None:
    """Finish what is at work for a run, and begin nothing more."""
    from tidegate.store.flows import pause_flow

    _steer(pause_flow, run, deployment, database)


@flow.command()
def resume(run: RunNumber, deployment: ExistingDeployment, database: DatabaseUrl = None) -> None:
    """Go on with a run that was paused."""
    from tidegate.store.flows import resume_flow

    _steer(resume_flow, run, deployment, database)


@flow.command()
def retry(run: RunNumber, deployment: ExistingDeployment, database: DatabaseUrl = None) -> None:
    """Try everything of a failed run again that did not succeed."""
    from tidegate.store.flows import retry_flow

    _steer(retry_flow, run, deployment, database)


def _steer(how: object, run: int, deployment: Path, database: str | None) -> None:
    assert callable(how)
    with told_errors(as_json=False), open_existing(deployment, database) as opened:
        from tidegate.store.flows import flow_run

        opened.transact(lambda c: how(c, run))
        typer.echo(_sentence(opened.transact(lambda c: flow_run(c, run))))


@contextmanager
def _created(deployment: Path, database: str | None) -> Iterator[Database]:
    from tidegate.run.deployment import open_deployment

    with open_deployment(deployment, database) as place:
        yield place.database


def _json(text: str) -> str:
    """The text, when it is JSON."""
    try:
        msgspec.json.decode(text)
    except msgspec.MsgspecError as error:
        raise InvalidJson(text, str(error)) from error
    return text


# --- telling ---------------------------------------------------------------------------------


def _sentence(run: FlowRun) -> str:
    because = f": {run.cause}" if run.cause else ""
    return printable(f"run {run.id} of flow {run.flow!r} is {run.state.value}{because}")


def _table(runs: Sequence[FlowRun]) -> str:
    if not runs:
        return "no runs"
    rows: list[tuple[str, ...]] = [("run", "flow", "key", "state", "begun", "cause")]
    rows += [
        (str(it.id), it.flow, it.key, it.state.value, clock(it.begun_at), _short(it.cause))
        for it in runs
    ]
    return printable("\n".join(aligned(rows)))


def _shown(
    run: FlowRun, steps: Sequence[StepProgress], state: dict[str, StateValue]
) -> Iterator[str]:
    yield _sentence(run)
    rows: list[tuple[str, ...]] = [
        ("step", "kind", "state", "items", "succeeded", "failed", "in flight", "last error")
    ]
    rows += [_step_row(it) for it in steps]
    yield from (f"  {line}" for line in aligned(rows))
    if state:
        yield "  state"
        told = [(key, it.json or "-", it.writer or "-") for key, it in state.items()]
        keys: list[tuple[str, ...]] = [("key", "value", "written by"), *told]
        yield from (f"    {line}" for line in aligned(keys))


def _step_row(it: StepProgress) -> tuple[str, ...]:
    if it.generating is None:
        return it.name, it.kind, it.state.value, "-", "-", "-", "-", _short(it.last_error)
    more = "" if it.generating == "complete" else "+"
    return (
        it.name, it.kind, it.state.value, f"{it.spawned}{more}", str(it.succeeded),
        str(it.failed), str(it.in_flight), _short(it.last_error),
    )  # fmt: skip


def _short(text: str | None) -> str:
    line = (text or "-").partition("\n")[0]
    return line if len(line) <= LAST_ERROR else f"{line[:LAST_ERROR]}…"
