"""The logs of a deployment's processes: one format for all of them, and a time on every line."""

from __future__ import annotations

import logging
from collections.abc import Callable
from logging.handlers import RotatingFileHandler
from os import environ
from pathlib import Path

import typer

from tidegate.cli.processes.log_throttle import OncePerSecond
from tidegate.settings import Settings

log = logging.getLogger(__name__)

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def begin_log(*, is_kept: bool) -> Callable[[str], None]:
    """Log to standard error; returns a function that prints a line there.

    With `is_kept`, where standard error goes to a file, lines have a time and INFO is logged too.
    """
    _log_to(logging.StreamHandler())
    if not is_kept:
        return lambda text: typer.echo(text, err=True)
    _log_more()
    return log.info


def begin_log_in(file: Path) -> Callable[[str], None]:
    """Log to a file; returns a function that writes a line there and to standard error."""
    settings = Settings.from_environment(environ)
    size, files = settings.log_bytes, settings.log_files
    _log_to(RotatingFileHandler(file, maxBytes=size, backupCount=files, delay=True))
    _log_more()

    def say(text: str) -> None:
        typer.echo(text, err=True)
        log.info(text)

    return say


def _log_to(handler: logging.Handler) -> None:
    handler.addFilter(OncePerSecond())
    logging.basicConfig(format=FORMAT, handlers=[handler])


def _log_more() -> None:
    logging.getLogger("tidegate").setLevel(logging.INFO)
