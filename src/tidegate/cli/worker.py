"""`tidegate worker`: the tasks of a pipeline, for a deployment that clients deliver to."""

from __future__ import annotations

import signal
from threading import Event
from typing import Annotated

import typer

from tidegate.cli.failing import told_errors
from tidegate.cli.finding import find_pipeline
from tidegate.cli.options import DatabaseUrl, ExistingDeployment, SparkMaster

LOOK = 1.0
"""Seconds between two looks at whether the tasks are alive."""


def worker(
    pipeline: Annotated[
        str,
        typer.Argument(metavar="PIPELINE", help="A registered name, or package.module:attribute."),
    ],
    deployment: ExistingDeployment,
    database: DatabaseUrl = None,
    shards: Annotated[
        int | None, typer.Option(min=1, help="Run on this many shards.", show_default=False)
    ] = None,
    spark: SparkMaster = "local[*]",
) -> None:
    """Run the tasks of a pipeline until interrupted.

    Several workers share the tasks; those of one that dies go to the others, or to the next.
    """
    with told_errors(as_json=False):
        from tidegate.run.deployment import open_deployment
        from tidegate.run.service import serving
        from tidegate.spark import session_on

        stopped = Event()
        for asked in (signal.SIGINT, signal.SIGTERM):
            signal.signal(asked, lambda *_: stopped.set())
        found = find_pipeline(pipeline)
        with (
            open_deployment(deployment, database) as place,
            session_on(spark) as session,
            serving(place, found, session, shards) as service,
        ):
            typer.echo(f"working on {found.name}; stop with Ctrl-C", err=True)
            while not stopped.wait(LOOK):
                service.check()
