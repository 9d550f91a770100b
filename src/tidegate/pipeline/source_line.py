"""Finds the line of the user's code that is being executed."""

from __future__ import annotations

import inspect
import linecache
import os
from pathlib import Path

from tidegate.errors import SourceLine

_PACKAGE = str(Path(__file__).parents[1]) + os.sep


def user_line() -> SourceLine:
    """The innermost line on the call stack that is not Tidegate's own."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    if frame is None:
        return SourceLine("<unknown>", 0)
    file, line = frame.f_code.co_filename, frame.f_lineno
    return SourceLine(file, line, linecache.getline(file, line, frame.f_globals).strip())
