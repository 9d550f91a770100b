"""The cause of a Spark error: its error condition and one sentence.

PySpark's `getCondition()` and `getSqlState()` are those of the outermost error, such as
TASK_WRITE_FAILED. The causes below it are only in the text, which is therefore read first.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

SPARK_ERRORS = (PySparkException, Py4JJavaError)
"""All errors of Spark; the second is raised for failed tasks of a classic session."""

_STATED = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\] +(.+)")
_CAUSED = re.compile(r"Caused by: [\w.$]+: (.+)")
_STATE = re.compile(r"\s*SQLSTATE: .*")
_STATE_CODE = re.compile(r"SQLSTATE: (\w{5})")
_DATA_EXCEPTION = "22"
"""The SQLSTATE class of values: overflow, division by zero, invalid cast."""
_LONGEST = 400


class Cause(NamedTuple):
    """Spark's error condition, and the first sentence of its message."""

    condition: str
    reason: str


def cause_of(error: BaseException) -> Cause:
    """The root cause of an error: of several conditions, the innermost is the one to act on.

    The message of a Java exception below it is added: a full disk, a missing file.
    """
    text = str(error)
    stated = [*_STATED.finditer(text)]
    condition, reason = stated[-1].groups() if stated else (_condition_of(error), text)
    below = _CAUSED.findall(text, stated[-1].end()) if stated else []
    return Cause(condition, _shortened(reason, *below[-1:]) or condition)


def is_in_the_data(error: BaseException | None) -> bool:
    """Whether the rows themselves are the cause, so that a retry fails again."""
    states = _STATE_CODE.findall(str(error))
    stated = error.getSqlState() if isinstance(error, PySparkException) else None
    return (states[-1] if states else stated or "").startswith(_DATA_EXCEPTION)


def _condition_of(error: BaseException) -> str:
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    return condition or type(error).__name__


def _shortened(reason: str, below: str = "") -> str:
    line = _STATE.sub("", reason.strip().partition("\n")[0]).strip()
    line = f"{line.rstrip('.')}: {below}" if below else line
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
