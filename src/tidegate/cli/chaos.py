"""`tidegate chaos`: kills a pipeline at every step of its protocol and compares the results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.arguments.loader import find_pipeline
from tidegate.cli.arguments.options import PipelineArgument
from tidegate.cli.output.error_output import reported_errors
from tidegate.errors import counted

if TYPE_CHECKING:
    from tidegate.testing import Trial


def chaos(
    pipeline: PipelineArgument,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Read the data from DIR/<source>/*.csv; by default generated (coffee only).",
            metavar="DIR",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random faults and data.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="Inject a few faults only.")] = False,
    processes: Annotated[
        bool,
        typer.Option(
            "--processes",
            help="Kill and suspend the processes of a whole deployment with three clients.",
        ),
    ] = False,
) -> None:
    """Kill a pipeline at each crash point and at random times, restart it, compare the results.

    Each trial runs in a separate process, killed by SIGKILL; PostgreSQL is killed under load as
    well. Results must have the same bytes as without faults, and be published once.
    """
    with reported_errors(as_json=False), TemporaryDirectory(prefix="tidegate-chaos-") as folder:
        find_pipeline(pipeline)
        trials = _process_trials if processes else _run_trials
        done = []
        for trial in trials(pipeline, data, Path(folder), seed, quick):
            typer.echo(_line(trial))
            done.append(trial)
        typer.echo(_summary(done))


def _line(trial: Trial) -> str:
    kills = counted(trial.kills, "kill") if trial.kills else "no kill"
    fault = "without faults" if trial.fault == "none" else trial.fault
    return f"{trial.seconds:6.1f} s  same results  {kills:<9}  {fault}"


def _summary(trials: Sequence[Trial]) -> str:
    kills = counted(sum(trial.kills for trial in trials), "kill")
    seconds = sum(trial.seconds for trial in trials)
    return (
        f"passed: after {kills} in {seconds:.0f} s all results have the bytes that they have"
        " without faults, and each was published once"
    )


def _run_trials(
    pipeline: str, data: Path | None, folder: Path, seed: int, quick: bool
) -> Iterator[Trial]:
    from tidegate.testing import QUICK_POINTS, Subject, generate_data, run_trials

    files = data or generate_data(pipeline, folder / "data", seed)
    points = QUICK_POINTS if quick else None
    subject = Subject(pipeline, files.absolute(), folder)
    return run_trials(subject, seed, points, random_kills=1 if quick else 5)


def _process_trials(
    pipeline: str, data: Path | None, folder: Path, seed: int, quick: bool
) -> Iterator[Trial]:
    """Three clients, each with separate generated data unless data was given."""
    from tidegate.testing import ChaosCluster, Client, cluster_trials, generate_data

    def files(number: int) -> Path:
        return data or generate_data(pipeline, folder / f"data-{number}", seed + number)

    def say(fault: str) -> None:
        typer.echo(f"          {fault}")

    numbers = range(1, 2 if quick else 4)
    clients = [Client(f"client-{number}", files(number).absolute()) for number in numbers]
    return cluster_trials(ChaosCluster(pipeline, folder, on_fault=say), clients, seed)
