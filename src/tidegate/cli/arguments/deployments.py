"""Opens the deployment of a command and finds a run in it by name; without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.errors import AmbiguousRun, NoDeployment, UnknownRun, listed

if TYPE_CHECKING:
    from tidegate.store import Database, RunInfo

RunName = Annotated[
    str, typer.Argument(metavar="RUN", help="The name of the run, as `tidegate status` prints it.")
]
PipelineName = Annotated[
    str | None,
    typer.Option(
        "--pipeline",
        help="Consider runs of this pipeline only.",
        metavar="NAME",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@contextmanager
def open_existing(deployment: Path, database: str | None) -> Iterator[Database]:
    """The database of a deployment that exists."""
    from os import environ

    from tidegate.store import open_database
    from tidegate.store.core.database import VARIABLE

    if not (database or environ.get(VARIABLE) or (deployment / "postgres").is_dir()):
        raise NoDeployment(folder=str(deployment))
    with open_database(database, deployment.absolute(), environ) as found:
        yield found


def find_run(database: Database, name: str, pipeline: str | None) -> RunInfo:
    """The latest run with this name; see `select_run`."""
    from tidegate.store import overview

    runs = database.transact(lambda connection: overview(connection, pipeline))
    return select_run(name, [summary.run for summary in runs])


def select_run(name: str, runs: Sequence[RunInfo]) -> RunInfo:
    """The first run with this name, which is the latest; raises `UnknownRun`, `AmbiguousRun`.

    A name with a number, as `status` prints it, selects exactly that run. Runs of a server's
    clients are stored as client/name; the name alone is enough if only one client has it.
    """
    for run in runs:
        if name in {run.name, run.key}:
            return run
    of_clients = [run for run in runs if run.name.partition("/")[2] == name]
    names = sorted({run.name for run in of_clients})
    if len(names) > 1:
        raise AmbiguousRun(run=name, known=listed(names))
    if not of_clients:
        raise UnknownRun(run=name)
    return of_clients[0]
