"""`tidegate demo`: something real to look at."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Annotated

import typer

from tidegate.cli.error_output import reported_errors
from tidegate.errors import UnknownDemo

GROUP = "tidegate.demos"
"""The entry-point group in which packages register demos: functions without arguments."""


def demo(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A registered demo.")] = "coffee",
) -> None:
    """Run coffee for three clients, kill their worker half-way, and check the answers.

    Starts Spark and PostgreSQL, generates data, and takes about two minutes. `tidegate demo drip`
    shows a run that goes on: chunks drip in, and every five seconds all answers are cut at one
    point. `tidegate demo discover` reads a site of unknown size with workers that die, in half a
    minute and without Spark; `tidegate demo reindex` replaces a search index while people search.
    """
    with reported_errors(as_json=False):
        registered = {point.name: point for point in entry_points(group=GROUP)}
        if name not in registered:
            raise UnknownDemo(name, ", ".join(sorted(registered)) or "none")
        registered[name].load()()
