"""`tidegate flow result` and `failed`: the results of a run, and its failed items."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import to_builtins

from tidegate.cli.arguments.deployments import AsJson, open_existing
from tidegate.cli.arguments.options import DatabaseUrl, ExistingDeployment
from tidegate.cli.flow.output import outcome_of, results
from tidegate.cli.flow.render import on_one_line, short
from tidegate.cli.flow.run import RunNumber, flow
from tidegate.cli.output.error_output import printable, reported_errors
from tidegate.cli.output.tables import aligned, json_text

if TYPE_CHECKING:
    from tidegate.store.flows.events import FailedTask


@flow.command()
def result(
    run: RunNumber,
    deployment: ExistingDeployment,
    step: Annotated[
        str | None,
        typer.Argument(
            metavar="STEP", help="Of this step instead of the last ones.", show_default=False
        ),
    ] = None,
    database: DatabaseUrl = None,
) -> None:
    """Print results as JSON: one line for a step, or one for each successful item.

    Without STEP, the results of the steps that no other step depends on.
    """
    with reported_errors(as_json=False), open_existing(deployment, database) as opened:
        for line in results(opened, run, step):
            typer.echo(line)


@flow.command()
def failed(
    run: RunNumber,
    deployment: ExistingDeployment,
    step: Annotated[str | None, typer.Option(help="Of this step only.", show_default=False)] = None,
    most: Annotated[int, typer.Option(min=1, help="At most this many.")] = 1000,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the items of a run that have failed finally, with first and last error."""
    with reported_errors(as_json=as_json), open_existing(deployment, database) as opened:
        from tidegate.store.flows.events import failed_tasks
        from tidegate.store.flows.runs import flow_run

        opened.transact(lambda c: flow_run(c, run))  # raises if there is none
        if step is not None:
            outcome_of(opened, run, step)
        number, tasks = opened.transact(lambda c: failed_tasks(c, run, step, most))
        found = {"number": number, "failed": to_builtins(tasks)}
        typer.echo(json_text(found) if as_json else printable_table(number, tasks))


def printable_table(number: int, tasks: Sequence[FailedTask]) -> str:
    """A line for each, and the total if that is more."""
    return "\n".join(printable(line) for line in _table(number, tasks))


def _table(number: int, tasks: Sequence[FailedTask]) -> Iterator[str]:
    if not tasks:
        yield "no failed items"
        return
    rows: list[tuple[str, ...]] = [
        ("step", "position", "key", "attempts", "first cause", "last error")
    ]
    yield from aligned([*rows, *map(_row, tasks)])
    if number > len(tasks):
        yield f"and {number - len(tasks):,} more of {number:,}; --most N lists more of them"


def _row(it: FailedTask) -> tuple[str, ...]:
    position = "-" if it.position is None else str(it.position)
    last = "the same" if it.last_error == it.cause else _brief(it.last_error)
    return it.step, position, it.key or "-", str(it.attempts), _brief(it.cause), last


def _brief(error: str | None) -> str:
    return short(on_one_line(error or "-"))
