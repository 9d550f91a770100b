"""`tidegate chaos`: kill a pipeline at every step of its protocol and compare the results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.error_output import reported_errors
from tidegate.cli.loader import find_pipeline
from tidegate.errors import counted

if TYPE_CHECKING:
    from tidegate.testing import Trial


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
    processes: Annotated[
        bool,
        typer.Option(
            "--processes",
            help="Kill and freeze the processes of a whole deployment under three clients.",
        ),
    ] = False,
) -> None:
    """Kill a pipeline at each crash point and at random, restart it, compare the results.

    Every trial is a process of its own, killed by SIGKILL; PostgreSQL is killed under load as
    well. Results must have the same bytes as without faults, and be published once.
    """
    with reported_errors(as_json=False), TemporaryDirectory(prefix="tidegate-chaos-") as folder:
        find_pipeline(pipeline)
        place = Path(folder)
        trials = _of_processes if processes else _of_runs
        done = []
        for trial in trials(pipeline, data, place, seed, quick):
            typer.echo(_told(trial))
            done.append(trial)
        typer.echo(_verdict(done))


def _told(trial: Trial) -> str:
    deaths = counted(trial.deaths, "death") if trial.deaths else "no death"
    fault = "without faults" if trial.fault == "none" else trial.fault
    return f"{trial.seconds:6.1f} s  same results  {deaths:<9}  {fault}"


def _verdict(trials: Sequence[Trial]) -> str:
    deaths = counted(sum(trial.deaths for trial in trials), "death")
    seconds = sum(trial.seconds for trial in trials)
    return (
        f"passed: after {deaths} in {seconds:.0f} s all results have the bytes that they have"
        " without faults, and each was published once"
    )


def _of_runs(
    pipeline: str, data: Path | None, place: Path, seed: int, quick: bool
) -> Iterator[Trial]:
    from tidegate.testing import QUICK, Subject, chaos, generated

    files = data or generated(pipeline, place / "data", seed)
    points = QUICK if quick else None
    subject = Subject(pipeline, files.absolute(), place)
    return chaos(subject, seed, points, random_kills=1 if quick else 5)


def _of_processes(
    pipeline: str, data: Path | None, place: Path, seed: int, quick: bool
) -> Iterator[Trial]:
    """Three clients; with data of their own unless some was given."""
    from tidegate.testing import ChaosCluster, Client, chaos_of_processes, generated

    def files(number: int) -> Path:
        return data or generated(pipeline, place / f"data-{number}", seed + number)

    def say(fault: str) -> None:
        typer.echo(f"          {fault}")

    clients = [Client(f"client-{it}", files(it).absolute()) for it in range(1, 2 if quick else 4)]
    return chaos_of_processes(ChaosCluster(pipeline, place, say=say), clients, seed)
