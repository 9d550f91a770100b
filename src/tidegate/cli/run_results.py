"""`tidegate results`: writes the results of a run to files."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.arguments.deployments import (
    AsJson,
    PipelineName,
    RunName,
    find_run,
    open_existing,
)
from tidegate.cli.arguments.options import DatabaseUrl, ExistingDeployment
from tidegate.cli.arguments.plan_loading import DeclaredAs, declaration_of
from tidegate.cli.output.error_output import reported_errors
from tidegate.cli.output.tables import count_column, json_text

if TYPE_CHECKING:
    from tidegate.store import RunInfo


class FileFormat(Enum):
    """The format of the files."""

    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"


def results(  # noqa: PLR0913, PLR0917  every argument is an option of the command
    run: RunName,
    deployment: ExistingDeployment,
    out: Annotated[Path, typer.Option(help="Write DIR/<sink>.<format>.", metavar="DIR")],
    number: Annotated[
        int | None,
        typer.Option(
            "--checkpoint",
            min=1,
            help="Read this published checkpoint instead of the final results.",
            metavar="N",
            show_default=False,
        ),
    ] = None,
    sink: Annotated[
        list[str] | None,
        typer.Option(
            help="Write this sink only. May be given several times.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    kind: Annotated[
        FileFormat, typer.Option("--format", help="The format of the files.")
    ] = FileFormat.CSV,
    pipeline: PipelineName = None,
    declared: DeclaredAs = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Write the results of a run to files: the final ones, or those of a published checkpoint.

    Rows of CSV files are sorted. Spark is started only for CSV that needs it, and for the columns
    of a sink without rows.
    """
    with reported_errors(as_json=as_json), open_existing(deployment, database) as opened:
        from tidegate.runtime.stored_results import read_results

        found = find_run(opened, run, pipeline)
        root = str(deployment.absolute() / "data")
        read = read_results(opened, root, found, number, lambda: declaration_of(found, declared))
        rows = {name: read.rows(name) for name in sink or read.batches}  # refuses unknown sinks
        files = {name: out / f"{name}.{kind.value}" for name in rows}
        for name, file in files.items():
            read.export(name, kind.value, file)
        written = [
            {"sink": name, "rows": rows[name], "file": str(file)} for name, file in files.items()
        ]
        if as_json:
            report = {"run": found.name, "pipeline": found.pipeline, "state": found.state.value}
            typer.echo(json_text({**report, "checkpoint": number, "results": written}))
        else:
            typer.echo("\n".join(_lines(found, number, rows, files)))


def _lines(
    run: RunInfo, number: int | None, rows: dict[str, int], files: dict[str, Path]
) -> Sequence[str]:
    what = "final results" if number is None else f"checkpoint {number}"
    written = (
        f"  {sink:<24} {count_column(rows[sink], 'row', 6)} in {files[sink]}" for sink in rows
    )
    return [f"run {run.name!r} of {run.pipeline}: {what}", *written]
