"""Output of errors: text for people, one JSON object for programs, never a traceback.

An error may have notes (`add_note`) with what the command adds to it.
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
"""Characters of a message that are printed: a longer one contains user data."""
LATE = (CheckpointPending, FlowTimeout, RunOverdue, RunTimeout)


@contextmanager
def reported_errors(*, as_json: bool, interrupted: str = "interrupted") -> Iterator[None]:
    """Print an error and end the command with its exit code.

    On Ctrl-C `interrupted` is printed, which states how to resume.
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
    """The condition, its message and its parameters."""
    parameters = {field.name: getattr(error, field.name) for field in fields(error)}
    plain = {name: _plain(value) for name, value in parameters.items()}
    body = {"condition": error.condition, "message": str(error), **plain}
    return {**body, "notes": _notes(error)} if _notes(error) else body


def error_text(error: TidegateError) -> str:
    """The message, the line of the declaration if there is one, and what to do."""
    if not isinstance(error, DeclarationError):
        return "\n".join([f"error: {error}", *_notes(error)])
    at = error.at
    line = [f"  {_relative(at)}", *([f"    {at.text}"] if at.text else [])]
    return "\n".join([f"error: {error.what}", "", *line, "", error.todo]).rstrip()


def printable(text: str) -> str:
    """A text without control characters for the terminal, shortened.

    >>> print(printable("column \\x1b[2J\\x00, caf\\xe9"))
    column \\x1b[2J\\x00, café
    """
    shown = text[:LONGEST]
    more = f" … and {len(text) - LONGEST:,} characters more" if len(text) > LONGEST else ""
    return "".join(map(_visible, shown)) + more


def _visible(character: str) -> str:
    is_plain = character.isprintable() or character == "\n"
    return character if is_plain else character.encode("unicode_escape").decode()


def _json_text(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if text.isprintable() else json.dumps(value, default=str)


def _notes(error: TidegateError) -> list[str]:
    return [*getattr(error, "__notes__", ())]


def _relative(at: SourceLine) -> str:
    """File and line, relative to the current folder if the file is below it."""
    file = Path(at.file)
    here = Path.cwd()
    return f"{file.relative_to(here) if file.is_relative_to(here) else file}:{at.line}"


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value
