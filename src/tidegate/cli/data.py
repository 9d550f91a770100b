"""`tidegate data`: writes generated data for a pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.output.error_output import reported_errors


def data(
    pipeline: Annotated[
        str, typer.Argument(metavar="PIPELINE", help="A pipeline with generated data: coffee.")
    ],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Write DIR/<source>/*.csv.")],
    seed: Annotated[int, typer.Option(help="Seed of the generator.")] = 1,
) -> None:
    """Write generated data for a pipeline, as input for `run`, `submit` and `chaos`."""
    with reported_errors(as_json=False):
        from tidegate.testing import generate_data

        generate_data(pipeline, folder, seed)
        files = sum(1 for path in folder.rglob("*") if path.is_file())
        typer.echo(f"wrote {files} files for {pipeline} to {folder}")
