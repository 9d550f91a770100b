"""Telling an error: a short block for people, one object for programs, never a traceback.

An error may have notes (`add_note`): what the command knows beside it.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tidegate.cli import INTERRUPTED
from tidegate.errors import (
    BarrierTimeout,
    CheckpointPending,
    DeclarationError,
    FlowTimeout,
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
LONGEST = 4000
"""Characters; what is longer tells of somebody's data."""
LATE = (BarrierTimeout, CheckpointPending, FlowTimeout, RunOverdue, RunTimeout)


@contextmanager
def reported_errors(*, as_json: bool, interrupted: str = "interrupted") -> Iterator[None]:
    """End the command with the right exit code when Tidegate refuses what it was asked.

    So does Ctrl-C; `interrupted` says what has become of what was under way.
    """
    try:
        yield
    except TidegateError as error:
        if as_json:
            typer.echo(_json_text({"error": error_json(error)}))
        else:
            typer.echo(printable(error_text(error)), err=True)
        raise typer.Exit(_exit_code(error)) from error
    except KeyboardInterrupt:
        typer.echo(interrupted, err=True)
        raise typer.Exit(INTERRUPTED) from None


def _exit_code(error: TidegateError) -> int:
    if isinstance(error, UsageError):
        return USAGE
    return TIMED_OUT if isinstance(error, LATE) else FAILED


def error_json(error: TidegateError) -> dict[str, object]:
    """The condition, its parameters and its sentence."""
    parameters = {field.name: getattr(error, field.name) for field in fields(error)}
    plain = {name: _plain(value) for name, value in parameters.items()}
    told = {"condition": error.condition, "message": str(error), **plain}
    return {**told, "notes": _notes(error)} if _notes(error) else told


def error_text(error: TidegateError) -> str:
    """What is wrong, the user's line, and what to do about it."""
    if not isinstance(error, DeclarationError):
        return "\n".join([f"error: {error}", *_notes(error)])
    at = error.at
    place = [f"  {_near(at)}", *([f"    {at.text}"] if at.text else [])]
    return "\n".join([f"error: {error.what}", "", *place, "", error.todo]).rstrip()


def printable(text: str) -> str:
    """A text that does nothing to a terminal but appear on it.

    >>> print(printable("column \\x1b[2J\\x00, caf\\xe9"))
    column \\x1b[2J\\x00, café
    """
    shown = text[:LONGEST]
    more = f" … and {len(text) - LONGEST:,} characters more" if len(text) > LONGEST else ""
    return "".join(it if it.isprintable() or it == "\n" else _escaped(it) for it in shown) + more


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _json_text(told: object) -> str:
    text = json.dumps(told, ensure_ascii=False, default=str)
    return text if text.isprintable() else json.dumps(told, default=str)


def _notes(error: TidegateError) -> list[str]:
    return [*getattr(error, "__notes__", ())]


def _near(at: SourceLine) -> str:
    """A place in a file, from where the user stands."""
    file = Path(at.file)
    here = Path.cwd()
    return f"{file.relative_to(here) if file.is_relative_to(here) else file}:{at.line}"


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value
