"""`tidegate settings`: every setting, its default and meaning."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from tidegate import settings as known
from tidegate.cli.output.error_output import reported_errors
from tidegate.cli.output.tables import aligned, json_text


def settings(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the settings that `--set NAME=VALUE` and TIDEGATE_NAME in the environment change."""
    with reported_errors(as_json=as_json):
        values = known.Settings.from_environment(os.environ)
    if as_json:
        rows = [{**it._asdict(), "value": getattr(values, it.name)} for it in known.KNOWN.values()]
        typer.echo(json_text(rows))
        return
    table = [("setting", "value", "default", "unit", "meaning")]
    table += [
        (it.name, f"{getattr(values, it.name):,}", f"{it.default:,}", it.unit, it.meaning)
        for it in sorted(known.KNOWN.values())
    ]
    for line in aligned(table):
        typer.echo(line)
