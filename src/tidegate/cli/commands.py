"""All commands, in the order of the help."""

from __future__ import annotations

from typing import Annotated

import typer

from tidegate import __version__
from tidegate.cli.chaos import chaos
from tidegate.cli.checkpoints import checkpoint, checkpoints, restore
from tidegate.cli.cutover import cutover
from tidegate.cli.data import data
from tidegate.cli.demo import demo
from tidegate.cli.explain import explain
from tidegate.cli.flow import flow
from tidegate.cli.init import init
from tidegate.cli.processes.monitor import monitor
from tidegate.cli.processes.pipeline_worker import worker
from tidegate.cli.processes.serve import serve
from tidegate.cli.processes.up import drain, up
from tidegate.cli.run import run
from tidegate.cli.run_results import results
from tidegate.cli.runs import cancel, status, why
from tidegate.cli.settings import settings
from tidegate.cli.submit import submit

app = typer.Typer(
    name="tidegate",
    help="Multi-stage data pipelines on Spark that know exactly when they are done.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 110},
)

COMMANDS = (
    demo,
    init,
    data,
    explain,
    run,
    up,
    submit,
    drain,
    worker,
    monitor,
    serve,
    status,
    why,
    results,
    cancel,
    checkpoint,
    checkpoints,
    restore,
    settings,
    chaos,
)

for _command in COMMANDS:
    app.command()(_command)

app.add_typer(flow)
app.add_typer(cutover)


def _print_version(is_given: bool) -> None:
    if is_given:
        typer.echo(f"tidegate {__version__}")
        raise typer.Exit


@app.callback()
def tidegate(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Multi-stage data pipelines on Spark that know exactly when they are done."""
