"""What Spark says when something fails, in short: its condition and one sentence."""

from __future__ import annotations

import re
from typing import NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

SPARK_ERRORS = (PySparkException, Py4JJavaError)
"""Everything that Spark raises; what fails inside a task of a classic session is the second."""

_STATED = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\] +(.+)")
_CAUSED = re.compile(r"Caused by: [\w.$]+: (.+)")
_STATE = re.compile(r"\s*SQLSTATE: .*")
_STATE_CODE = re.compile(r"SQLSTATE: (\w{5})")
_DATA_EXCEPTION = "22"
"""The class of SQL's states for values: overflow, division by zero, a cast that cannot be."""
_LONGEST = 400


class Cause(NamedTuple):
    """Spark's name for what happened, and its first sentence about it."""

    condition: str
    reason: str


def cause_of(error: BaseException) -> Cause:
    """The root of an error: of several conditions, the innermost is the one to act on.

    What Java says below it is added: a full disk, a file that is gone.
    """
    text = str(error)
    stated = [*_STATED.finditer(text)]
    condition, reason = stated[-1].groups() if stated else (type(error).__name__, text)
    below = _CAUSED.findall(text, stated[-1].end()) if stated else []
    return Cause(condition, _shortened(reason, *below[-1:]) or condition)


def is_in_the_data(error: BaseException | None) -> bool:
    """Whether the rows themselves are the cause, so that trying again cannot help."""
    states = _STATE_CODE.findall(str(error))
    return bool(states) and states[-1].startswith(_DATA_EXCEPTION)


def _shortened(reason: str, below: str = "") -> str:
    line = _STATE.sub("", reason.strip().partition("\n")[0]).strip()
    line = f"{line.rstrip('.')}: {below}" if below else line
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
