"""`tidegate run`: runs a pipeline over a folder of files, in one process."""

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

from tidegate.cli.arguments.loader import find_pipeline
from tidegate.cli.arguments.options import (
    CheckpointEvery,
    DatabaseUrl,
    DataFolder,
    DeploymentFolder,
    GivenSettings,
    PipelineArgument,
    ShardCount,
    SparkMaster,
    UnalignedAfter,
    checkpoints_option,
)
from tidegate.cli.checkpoints import checkpoint_lines
from tidegate.cli.output.error_output import reported_errors
from tidegate.cli.output.tables import count_column
from tidegate.settings import set_in_environment

if TYPE_CHECKING:
    from tidegate.runtime.ingestion.folder_run import RunReport

RESUMABLE = "interrupted: repeat the command to resume the run"
NOT_RESUMABLE = "interrupted: nothing is stored; with --deployment DIR a run can be resumed"


def run(  # noqa: PLR0913, PLR0917  every argument is an option of the command
    pipeline: PipelineArgument,
    data: DataFolder,
    out: Annotated[Path, typer.Option(help="Write the results to DIR/<sink>.csv.", metavar="DIR")],
    name: Annotated[str, typer.Option("--run", help="The name of the run.")] = "run",
    shards: ShardCount = None,
    deadline: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Fail the run after this many seconds.",
            metavar="SECONDS",
            show_default=False,
        ),
    ] = None,
    checkpoint_every: CheckpointEvery = None,
    unaligned_after: UnalignedAfter = None,
    deployment: DeploymentFolder = None,
    database: DatabaseUrl = None,
    spark: SparkMaster = "local[*]",
    given: GivenSettings = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Run a pipeline over a folder of files and write its results when they are complete.

    With --deployment, repeating the command resumes a run that was interrupted or killed.
    """
    interrupted = RESUMABLE if deployment else NOT_RESUMABLE
    with reported_errors(as_json=as_json, interrupted=interrupted):
        # Imported here: loading Spark takes a second, also for `--help`.
        from tidegate.cli.output.progress import report_progress
        from tidegate.runtime.deployment import open_deployment
        from tidegate.runtime.ingestion.folder_run import RunOptions, chunks_in, run_folder
        from tidegate.spark import session_on

        set_in_environment(os.environ, given or ())
        found = find_pipeline(pipeline)
        chunks = chunks_in(data, found)
        with (
            report_progress(quiet=as_json) as progress,
            _folder(deployment) as folder,
            open_deployment(folder, database) as opened,
            session_on(spark) as session,
        ):
            checkpoints = checkpoints_option(checkpoint_every, unaligned_after)
            options = RunOptions(name, shards, deadline, checkpoints)
            report = run_folder(found, chunks, out, session, opened, options, progress)
        typer.echo(json.dumps(asdict(report), indent=2) if as_json else _text(report, out))


@contextmanager
def _folder(deployment: Path | None) -> Iterator[Path]:
    """The deployment's folder; by default a temporary one that is removed with the command."""
    if deployment is not None:
        yield deployment
        return
    with TemporaryDirectory(prefix="tidegate-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _text(report: RunReport, out: Path) -> str:
    lines = [f"run {report.run!r} of {report.pipeline} is complete ({report.seconds:.1f} s)", ""]
    lines += ["  in"]
    for source, chunks in report.chunks.items():
        rows_in = count_column(report.rows_in[source], "row", 12).rstrip()
        lines.append(f"    {source:<24} {count_column(chunks, 'chunk', 6)} {rows_in}")
    lines += ["  out"]
    for sink, rows in report.rows_out.items():
        lines.append(f"    {sink:<24} {count_column(rows, 'row', 6)} in {out / sink}.csv")
    lines += checkpoint_lines(report.checkpoints)
    lines += ["  stages, slowest first"]
    for stage in sorted(report.stages, key=lambda stage: -stage.seconds)[:10]:
        spent = f"{count_column(stage.jobs, 'job', 6)}   {stage.seconds:>10.1f} s"
        lines.append(f"    {stage.stage:<24} {spent} {count_column(stage.rows, 'row', 12)} out")
    return "\n".join(lines)
