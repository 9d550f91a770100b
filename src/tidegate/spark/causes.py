"""What Spark says when something fails, in short: its condition and one sentence."""

from __future__ import annotations

import re
from typing import NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

SPARK_ERRORS = (PySparkException, Py4JJavaError)
"""Everything that Spark raises; what fails inside a task of a classic session is the second."""

_STATED = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\] +(.+)")
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
    """The root of an error: of several conditions, the innermost is the one to act on."""
    text = str(error)
    stated = _STATED.findall(text)
    condition, reason = stated[-1] if stated else (type(error).__name__, text)
    return Cause(condition, _shortened(reason) or condition)


def is_in_the_data(error: BaseException | None) -> bool:
    """Whether the rows themselves are the cause, so that trying again cannot help."""
    states = _STATE_CODE.findall(str(error))
    return bool(states) and states[-1].startswith(_DATA_EXCEPTION)


def _shortened(reason: str) -> str:
    line = _STATE.sub("", reason.strip().partition("\n")[0]).strip()
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
