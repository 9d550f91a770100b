"""`tidegate flow signal`, `set`, `tolerate`, `cancel`, `pause`, `resume`, `retry`."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Raw

from tidegate.cli.arguments.deployments import open_existing
from tidegate.cli.arguments.options import DatabaseUrl, ExistingDeployment
from tidegate.cli.flow.render import sentence, tolerated
from tidegate.cli.flow.run import RunNumber, checked_json, flow
from tidegate.cli.output.error_output import printable, reported_errors
from tidegate.errors import StateUndeclared, listed
from tidegate.flows.model.policies import Tolerate

if TYPE_CHECKING:
    from tidegate.flows.client import FlowRun
    from tidegate.store import Database


@flow.command()
def signal(
    run: RunNumber,
    step: Annotated[
        str, typer.Argument(metavar="STEP", help="The step that waits for the signal.")
    ],
    value: Annotated[str, typer.Argument(metavar="JSON", help="The value of the signal.")],
    deployment: ExistingDeployment,
    database: DatabaseUrl = None,
) -> None:
    """Deliver the signal that a step waits for."""
    with reported_errors(as_json=False), open_existing(deployment, database) as opened:
        from tidegate.flows.client import flow_run

        flow_run(opened, run).signal(step, Raw(checked_json(value).encode()), getpass.getuser())
        typer.echo(f"step {step!r} of run {run} received its signal")


@flow.command(name="set")
def set_(
    run: RunNumber,
    key: Annotated[str, typer.Argument(metavar="KEY", help="A key that is declared external.")],
    value: Annotated[str, typer.Argument(metavar="JSON", help="The new value.")],
    deployment: ExistingDeployment,
    database: DatabaseUrl = None,
) -> None:
    """Write an external state key of a run, and wake the steps that wait for it."""
    with reported_errors(as_json=False), open_existing(deployment, database) as opened:
        from tidegate.flows.client import flow_run

        text = checked_json(value)
        with _explain_refusal(opened, run, key):
            flow_run(opened, run).set_state(key, Raw(text.encode()), getpass.getuser())
        typer.echo(printable(f"state {key!r} of run {run} is {text}"))


@flow.command()
def tolerate(
    run: RunNumber,
    step: Annotated[str, typer.Argument(metavar="STEP", help="A step with items.")],
    deployment: ExistingDeployment,
    count: Annotated[
        int | None, typer.Option(min=0, help="Number of items that may fail.", show_default=False)
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Share that may fail, 0 to 1.", show_default=False),
    ] = None,
    database: DatabaseUrl = None,
) -> None:
    """Change how many items of a step may fail; without options, none."""
    with reported_errors(as_json=False), open_existing(deployment, database) as opened:
        from tidegate.flows.client import flow_run

        flow_run(opened, run).tolerate(step, Tolerate(count, share))
        text = f"step {step!r} of run {run} tolerates {tolerated(count, share)}"
        typer.echo(printable(text))


@flow.command()
def cancel(
    run: RunNumber,
    deployment: ExistingDeployment,
    reason: Annotated[
        str | None,
        typer.Option(help="The reason, kept with the run.", show_default="the user"),
    ] = None,
    database: DatabaseUrl = None,
) -> None:
    """Cancel a run: tasks in flight are notified, no other is started."""
    with reported_errors(as_json=False), open_existing(deployment, database) as opened:
        from tidegate.flows.client import flow_run

        found = flow_run(opened, run)
        found.cancel(reason or f"requested by {getpass.getuser()}")
        typer.echo(sentence(found.status()))


@flow.command()
def pause(run: RunNumber, deployment: ExistingDeployment, database: DatabaseUrl = None) -> None:
    """Pause a run: tasks in flight finish, no other is started."""
    from tidegate.flows.client import FlowRun

    _control(FlowRun.pause, run, deployment, database)


@flow.command()
def resume(run: RunNumber, deployment: ExistingDeployment, database: DatabaseUrl = None) -> None:
    """Resume a paused run."""
    from tidegate.flows.client import FlowRun

    _control(FlowRun.resume, run, deployment, database)


@flow.command()
def retry(run: RunNumber, deployment: ExistingDeployment, database: DatabaseUrl = None) -> None:
    """Retry a failed run: everything that did not succeed runs again."""
    from tidegate.flows.client import FlowRun

    _control(FlowRun.retry, run, deployment, database)


@contextmanager
def _explain_refusal(database: Database, run: int, key: str) -> Iterator[None]:
    try:
        yield
    except StateUndeclared as error:
        error.add_note(_explanation(database, run, key))
        raise


def _explanation(database: Database, run: int, key: str) -> str:
    from tidegate.store.flows.runs import flow_state

    _, state = database.transact(lambda c: flow_state(c, run))
    if key not in state:
        known = f"its keys are: {listed(list(state))}" if state else "its flow declares none"
        return f"Run {run} has no key {key!r}; {known}."
    return "Only keys that the flow declares with external=True can be set."


def _control(
    operation: Callable[[FlowRun], object], run: int, deployment: Path, database: str | None
) -> None:
    with reported_errors(as_json=False), open_existing(deployment, database) as opened:
        from tidegate.flows.client import flow_run

        found = flow_run(opened, run)
        operation(found)
        typer.echo(sentence(found.status()))
