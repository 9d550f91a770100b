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
        rows = [
            {**setting._asdict(), "value": getattr(values, setting.name)}
            for setting in known.KNOWN.values()
        ]
        typer.echo(json_text(rows))
        return
    table = [("setting", "value", "default", "unit", "meaning")]
    table += [
        (
            setting.name,
            f"{getattr(values, setting.name):,}",
            f"{setting.default:,}",
            setting.unit,
            setting.meaning,
        )
        for setting in sorted(known.KNOWN.values())
    ]
    for line in aligned(table):
        typer.echo(line)
