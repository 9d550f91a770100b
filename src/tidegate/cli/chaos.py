"""`tidegate chaos`: kill a pipeline at every step of its protocol and compare the results."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from tidegate.cli.failing import told_errors
from tidegate.cli.finding import find_pipeline


def chaos(
    pipeline: Annotated[
        str,
        typer.Argument(metavar="PIPELINE", help="A registered name, or package.module:attribute."),
    ],
    data: Annotated[
        Path | None,
        typer.Option(help="Has DIR/<source>/*.csv; generated for coffee.", metavar="DIR"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides about the random part of it.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="Only the most telling faults.")] = False,
) -> None:
    """Kill a pipeline at each crash point and at random, restart it, compare the results.

    Every trial is a process of its own, killed by SIGKILL; PostgreSQL is killed under load as
    well. Results must have the same bytes as without faults, and be published once.
    """
    with told_errors(as_json=False), TemporaryDirectory(prefix="tidegate-chaos-") as folder:
        from tidegate.testing import QUICK, Subject, chaos, generated

        find_pipeline(pipeline)
        files = data or generated(pipeline, Path(folder) / "data", seed)
        points = QUICK if quick else None
        subject = Subject(pipeline, files.absolute(), Path(folder))
        for trial in chaos(subject, seed, points, random_kills=1 if quick else 5):
            deaths = f"{trial.deaths} deaths" if trial.deaths else "no death"
            typer.echo(f"{trial.seconds:6.1f} s  same results  {deaths:<9}  {trial.fault}")
