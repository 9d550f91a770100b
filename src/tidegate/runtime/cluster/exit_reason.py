"""Finds the error that ended a process at the end of its log.

Tidegate, Python and Java write to the log in any order: warnings of Java may precede the error or
follow it much later.
"""

from __future__ import annotations

import re

LONGEST = 600
"""Characters of an error that are shown."""

_ERROR = re.compile(r"^error: (?P<text>.+(?:\n(?![\d=]|WARN|INFO|ERROR|\w+ ).+)*)", re.MULTILINE)
"""The error that a command ends with, up to the next line that begins like a log line."""
_TRACEBACK = re.compile(
    r"^Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(?P<text>\S.*)", re.MULTILINE
)
_LOGGED = re.compile(
    r"^\d{4}-\d\d-\d\d [\d:,]+ (?:ERROR|CRITICAL) [\w.]+: (?P<text>.+)", re.MULTILINE
)
_OUT_OF_MEMORY = re.compile(r"^(?P<text>Terminating due to java\.\S+.*)", re.MULTILINE)
_IN_ORDER = (_ERROR, _TRACEBACK, _LOGGED, _OUT_OF_MEMORY)


def last_error(log: str) -> str:
    """The error that ended a process, in one line; empty if its log has none.

    >>> last_error("error: Spark has ended\\n26/01/01 10:00:00 WARN Shell: no hadoop\\n")
    'Spark has ended'
    """
    for kind in _IN_ORDER:
        found = [*kind.finditer(log)]
        if found:
            text = " ".join(found[-1]["text"].split())
            return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    return ""
