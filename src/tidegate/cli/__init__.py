"""The command line: one file per command, all of them listed here.

    explain   show the plan of a pipeline, without running anything
    run       run a pipeline over a folder of files
    asking    status, why, cancel: about the runs of a deployment
    cuts      checkpoint, checkpoints, restore: about the cuts of a run
    chaos     kill a pipeline at every step and compare its results
    worker    run the tasks of a pipeline for clients that deliver to a deployment
    serve     the same, and take runs by HTTP
    monitor   watch the runs of a deployment
    up        a server, monitors and workers together; drain: one of them goes
    submit    send a folder of files to a server, and fetch the results
    data      write files to try a pipeline with
    demo      run a pipeline on generated data and check the answers
    options   what several commands take
    opening   which deployment and which run a command is about
    planning  the plan of a run, made again from its declaration
    tables    how commands show what they have found
    progress  how a run is told while it works
    logs      what the processes of a deployment write down
    finding   which pipeline a name on the command line means
    failing   how errors are told, to people and to programs

Exit codes: 0 done, 1 failed, 2 the command itself was wrong, 3 timed out.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tidegate import __version__
from tidegate.cli.asking import cancel, status, why
from tidegate.cli.chaos import chaos
from tidegate.cli.cuts import checkpoint, checkpoints, restore
from tidegate.cli.data import data
from tidegate.cli.demo import demo
from tidegate.cli.explain import explain
from tidegate.cli.monitor import monitor
from tidegate.cli.run import run
from tidegate.cli.serve import serve
from tidegate.cli.submit import submit
from tidegate.cli.up import drain, up
from tidegate.cli.worker import worker

app = typer.Typer(
    name="tidegate",
    help="Multi-stage data pipelines on Spark that know exactly when they are done.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

COMMANDS = (
    demo,
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
    cancel,
    checkpoint,
    checkpoints,
    restore,
    chaos,
)

for _command in COMMANDS:
    app.command()(_command)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"tidegate {__version__}")
        raise typer.Exit


@app.callback()
def tidegate(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Say the version."),
    ] = False,
) -> None:
    """Multi-stage data pipelines on Spark that know exactly when they are done."""


def main() -> None:
    """Run the command line; never returns."""
    app()
