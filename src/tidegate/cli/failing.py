"""Telling an error: a short block for people, one object for programs, never a traceback."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tidegate.errors import (
    BarrierTimeout,
    CheckpointPending,
    DeclarationError,
    RunOverdue,
    RunTimeout,
    TidegateError,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.errors import SourceLine

FAILED = 1
USAGE = 2
TIMED_OUT = 3
LATE = (BarrierTimeout, CheckpointPending, RunOverdue, RunTimeout)


@contextmanager
def told_errors(*, as_json: bool) -> Iterator[None]:
    """End the command with the right exit code when Tidegate refuses what it was asked."""
    try:
        yield
    except TidegateError as error:
        if as_json:
            typer.echo(json.dumps({"error": error_json(error)}, ensure_ascii=False, default=str))
        else:
            typer.echo(error_text(error), err=True)
        raise typer.Exit(_exit_code(error)) from error


def _exit_code(error: TidegateError) -> int:
    if isinstance(error, UsageError):
        return USAGE
    return TIMED_OUT if isinstance(error, LATE) else FAILED


def error_json(error: TidegateError) -> dict[str, object]:
    """The condition, its parameters and its sentence."""
    parameters = {field.name: getattr(error, field.name) for field in fields(error)}
    plain = {name: _plain(value) for name, value in parameters.items()}
    return {"condition": error.condition, "message": str(error), **plain}


def error_text(error: TidegateError) -> str:
    """What is wrong, the user's line, and what to do about it."""
    if not isinstance(error, DeclarationError):
        return f"error: {error}"
    at = error.at
    place = [f"  {_near(at)}", *([f"    {at.text}"] if at.text else [])]
    return "\n".join([f"error: {error.what}", "", *place, "", error.todo]).rstrip()


def _near(at: SourceLine) -> str:
    """A place in a file, from where the user stands."""
    file = Path(at.file)
    here = Path.cwd()
    return f"{file.relative_to(here) if file.is_relative_to(here) else file}:{at.line}"


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value
