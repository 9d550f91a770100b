"""Reads the event time of a source: the column with the time of its rows, and their delay."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from tidegate.errors import InvalidArgument
from tidegate.pipeline.nodes import EventTime

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.errors import SourceLine
    from tidegate.pipeline.nodes import SourceField

TIMES = ("timestamp", "timestamp_ltz", "timestamp_ntz", "date")
"""The types of columns with a time."""

_SECONDS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "second", "seconds"), 1.0),
    **dict.fromkeys(("min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}
_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE | re.ASCII)
_MOST_SECONDS = 36_500 * 86_400.0
_DELAY = "seconds, or a text such as '90 s', '10 minutes', '2 h' or '1 day'; up to 36,500 days"


def read_event_time(
    fields: Sequence[SourceField], column: str | None, delay: float | str | None, at: SourceLine
) -> EventTime | None:
    """The event time of a source with these columns, if it has one; raises `InvalidArgument`."""
    if column is None:
        if delay is not None:
            expected = "no delay without event_time, the column that it belongs to"
            raise InvalidArgument(at, "source", "delay", delay, expected)
        return None
    return EventTime(_column(fields, column, at), _milliseconds(delay, at))


def _column(fields: Sequence[SourceField], column: str, at: SourceLine) -> str:
    """The name of the column as in the schema."""
    times = [it.name for it in fields if it.type.strip().lower() in TIMES]
    for name in times:
        if name.casefold() == str(column).casefold():
            return name
    expected = f"a timestamp or date column: {', '.join(times) or 'this source has none'}"
    raise InvalidArgument(at, "source", "event_time", column, expected)


def _milliseconds(delay: float | str | None, at: SourceLine) -> int:
    seconds = 0.0 if delay is None else _seconds(delay)
    if seconds is None or not 0 <= seconds <= _MOST_SECONDS:
        raise InvalidArgument(at, "source", "delay", delay, _DELAY)
    return math.ceil(round(seconds * 1000, 3))


def _seconds(delay: object) -> float | None:
    """The delay in seconds; None if it is no time. NaN is neither more nor less than any limit."""
    if isinstance(delay, int | float) and not isinstance(delay, bool):
        return delay
    found = _TEXT.fullmatch(delay) if isinstance(delay, str) else None
    unit = _SECONDS.get(found[2].lower()) if found else None
    return float(found[1]) * unit if found and unit else None
