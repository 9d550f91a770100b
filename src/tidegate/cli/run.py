"""`tidegate run`: a pipeline over a folder of files, in one process."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.error_output import reported_errors
from tidegate.cli.loader import find_pipeline
from tidegate.cli.options import (
    CheckpointEvery,
    DatabaseUrl,
    DataFolder,
    DeploymentFolder,
    GivenSettings,
    SparkMaster,
    UnalignedAfter,
    checkpoints_option,
)
from tidegate.cli.tables import count_column
from tidegate.settings import put

if TYPE_CHECKING:
    from tidegate.runtime.ingestion.folder_run import RunReport

GOES_ON = "interrupted: give the same command again to go on"
IS_GONE = "interrupted: nothing is kept; with --deployment DIR the same command would go on"


def run(  # noqa: PLR0913, PLR0917  every argument is an option of the command
    pipeline: Annotated[
        str,
        typer.Argument(metavar="PIPELINE", help="A registered name, or package.module:attribute."),
    ],
    data: DataFolder,
    out: Annotated[Path, typer.Option(help="Gets DIR/<sink>.csv.", metavar="DIR")],
    name: Annotated[str, typer.Option("--run", help="The name of the run.")] = "run",
    shards: Annotated[
        int | None, typer.Option(min=1, help="Run on this many shards.", show_default=False)
    ] = None,
    deadline: Annotated[
        float | None,
        typer.Option(min=0, help="Give up after this many seconds.", show_default=False),
    ] = None,
    checkpoint_every: CheckpointEvery = None,
    unaligned_after: UnalignedAfter = None,
    deployment: DeploymentFolder = None,
    database: DatabaseUrl = None,
    spark: SparkMaster = "local[*]",
    given: GivenSettings = None,
    as_json: Annotated[bool, typer.Option("--json", help="The report for programs.")] = False,
) -> None:
    """Run a pipeline over a folder of files and write its results when they are complete.

    With --deployment, a run that was killed goes on when the same command is given again.
    """
    with reported_errors(as_json=as_json, interrupted=GOES_ON if deployment else IS_GONE):
        # Loading Spark takes a second, which a command that only explains need not pay.
        from tidegate.cli.progress import report_progress
        from tidegate.runtime.deployment import open_deployment
        from tidegate.runtime.ingestion.folder_run import RunOptions, chunks_in, run_folder
        from tidegate.spark import session_on

        put(os.environ, given or ())
        found = find_pipeline(pipeline)
        chunks = chunks_in(data, found)
        with (
            report_progress(quiet=as_json) as progress,
            _folder(deployment) as folder,
            open_deployment(folder, database) as place,
            session_on(spark) as session,
        ):
            checkpoints = checkpoints_option(checkpoint_every, unaligned_after)
            wanted = RunOptions(name, shards, deadline, checkpoints)
            report = run_folder(found, chunks, out, session, place, wanted, progress)
        typer.echo(json.dumps(asdict(report), indent=2) if as_json else _closing(report, out))


@contextmanager
def _folder(deployment: Path | None) -> Iterator[Path]:
    """The deployment's folder; by default one that lives as long as the command."""
    if deployment is not None:
        yield deployment
        return
    with TemporaryDirectory(prefix="tidegate-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _closing(report: RunReport, out: Path) -> str:
    lines = [f"run {report.run!r} of {report.pipeline} is complete ({report.seconds:.1f} s)", ""]
    lines += ["  in"]
    for source, chunks in report.chunks.items():
        rows_in = count_column(report.rows_in[source], "row", 12).rstrip()
        lines.append(f"    {source:<24} {count_column(chunks, 'chunk', 6)} {rows_in}")
    lines += ["  released"]
    for sink, rows in report.rows_out.items():
        lines.append(f"    {sink:<24} {count_column(rows, 'row', 6)} in {out / sink}.csv")
    lines += ["  stages, slowest first"]
    for stage in sorted(report.stages, key=lambda it: -it.seconds)[:10]:
        spent = f"{count_column(stage.jobs, 'job', 6)}   {stage.seconds:>10.1f} s"
        lines.append(f"    {stage.stage:<24} {spent} {count_column(stage.rows, 'row', 12)} out")
    return "\n".join(lines)
