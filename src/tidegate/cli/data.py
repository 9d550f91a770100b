"""`tidegate data`: files to try a pipeline with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.error_output import reported_errors


def data(
    pipeline: Annotated[
        str, typer.Argument(metavar="PIPELINE", help="A pipeline with generated data: coffee.")
    ],
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where DIR/<source>/*.csv are written.")
    ],
    seed: Annotated[int, typer.Option(help="Other seeds give other data.")] = 1,
) -> None:
    """Write generated files to try a pipeline with: `run`, `submit` and `chaos` take them."""
    with reported_errors(as_json=False):
        from tidegate.testing import generated

        generated(pipeline, folder, seed)
        files = sum(1 for path in folder.rglob("*") if path.is_file())
        typer.echo(f"{files} files for {pipeline} are in {folder}")
