"""The deployment that a command is about, and the run of it that a name means; without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.errors import NoDeployment, UnknownRun

if TYPE_CHECKING:
    from tidegate.store import Database, Run

RunName = Annotated[str, typer.Argument(metavar="RUN", help="The name of a run.")]
PipelineName = Annotated[
    str | None,
    typer.Option("--pipeline", help="Of this pipeline only.", metavar="NAME", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]


@contextmanager
def open_existing(deployment: Path, database: str | None) -> Iterator[Database]:
    """The database of a deployment that exists."""
    from os import environ

    from tidegate.store import open_database
    from tidegate.store.database import VARIABLE

    if not (database or environ.get(VARIABLE) or (deployment / "postgres").is_dir()):
        raise NoDeployment(folder=str(deployment))
    with open_database(database, deployment.absolute(), environ) as found:
        yield found


def find(database: Database, name: str, pipeline: str | None) -> Run:
    """The run that has this name now or had it last."""
    from tidegate.store import overview

    runs = database.transact(lambda connection: overview(connection, pipeline))
    for summary in runs:
        if summary.run.name == name:
            return summary.run
    raise UnknownRun(run=name)
