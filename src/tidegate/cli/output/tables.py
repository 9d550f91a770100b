"""Output of commands: tables for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from tidegate.errors import counted


def aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """The lines of a table, the first one being its header."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def clock(time: datetime) -> str:
    """A time, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S")


def with_times(
    rows: Sequence[tuple[str, ...]], title: str, times: Sequence[int | None]
) -> list[tuple[str, ...]]:
    """A table with event times as one more column, unless all are None."""
    if all(time is None for time in times):
        return [*rows]
    column = [title, *map(event_clock, times)]
    return [(*row, cell) for row, cell in zip(rows, column, strict=True)]


def event_clock(time: int | None) -> str:
    """An event time in milliseconds since 1970, to the second.

    >>> event_clock(1_772_366_400_500), event_clock(None)
    ('2026-03-01 12:00:00', '-')
    """
    if time is None:
        return "-"
    try:
        return clock(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time))
    except OverflowError:  # a year that Spark has and Python does not
        return f"{time} ms"


def json_text(value: object) -> str:
    """A value as JSON; types that JSON does not have become text."""
    return json.dumps(value, default=_plain, ensure_ascii=False, indent=2)


def _plain(value: object) -> object:
    if isinstance(value, frozenset | set):
        return sorted(value)
    return getattr(value, "value", None) or str(value)


def count_column(number: int, of: str, width: int) -> str:
    """A number with its unit, in a column of fixed width.

    >>> count_column(1, "row", 4), count_column(22, "row", 4)
    ('   1 row ', '  22 rows')
    """
    digits, word = counted(number, of).split()
    return f"{digits:>{width}} {word:<{len(of) + 1}}"
