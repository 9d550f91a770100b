"""`tidegate demo`: runs a registered demonstration."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Annotated

import typer

from tidegate.cli.output.error_output import reported_errors
from tidegate.errors import UnknownDemo

GROUP = "tidegate.demos"
"""The entry-point group in which packages register demos: functions without arguments."""


def demo(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A registered demo.")] = "coffee",
) -> None:
    """Run a demonstration: coffee runs three clients, kills their worker and checks the results.

    Starts Spark and PostgreSQL, generates data, and takes about two minutes. `tidegate demo drip`
    shows a continuous run: chunks arrive one by one, with a checkpoint every five seconds.
    `tidegate demo discover` crawls a site of unknown size while workers are killed, in half a
    minute and without Spark; `tidegate demo reindex` replaces a search index under its readers.
    """
    with reported_errors(as_json=False):
        registered = {point.name: point for point in entry_points(group=GROUP)}
        if name not in registered:
            raise UnknownDemo(name, ", ".join(sorted(registered)) or "none")
        registered[name].load()()
