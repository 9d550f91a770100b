"""Texts of EXPLAIN for the parts of a plan: short, and never much longer than a line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidegate.pipeline.nodes import AggregateColumn, SelectColumn

_LINE = 110
_ITEM = 60
_FORMULA = 80
_COLUMNS = 8


def shortened(text: str, width: int = _LINE) -> str:
    """`text` on one line, ending in … if it is longer than `width`."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def listed(items: Sequence[object], width: int = _LINE) -> str:
    """As many items as fit on a line, and the number of the others.

    >>> listed([f"c{number}" for number in range(10_000)], width=20)
    '[c0, c1, c2, c3, c4, … 9,995 more]'
    """
    shown: list[str] = []
    left = width
    for item in items:
        text = shortened(str(item), _ITEM)
        left -= len(text) + 2
        if shown and left < 0:
            return f"[{', '.join(shown)}, … {len(items) - len(shown):,} more]"
        shown.append(text)
    return f"[{', '.join(shown)}]"


def counted(number: int, thing: str) -> str:
    """A number of things.

    >>> counted(1, "stage"), counted(1_000, "barrier")
    ('1 stage', '1,000 barriers')
    """
    return f"{number:,} {thing}" + ("" if number == 1 else "s")


def by_name(columns: Sequence[SelectColumn]) -> str:
    """The columns of a select: names, and the SQL of computed columns."""
    return listed([it.name if it.sql == it.name else f"{it.name} = {it.sql}" for it in columns])


def whole(columns: Sequence[AggregateColumn]) -> Iterator[str]:
    """The columns of an aggregate as the user wrote them, one line each."""
    yield from _limited(columns, [_marked(it, it.sql) for it in columns[:_COLUMNS]])


def partial(columns: Sequence[AggregateColumn]) -> Iterator[str]:
    """The states of partial results, one line per column."""
    lines = [
        ", ".join(f"{state.name} = {shortened(state.partial, _ITEM)}" for state in column.states)
        for column in columns[:_COLUMNS]
    ]
    yield from _limited(columns, lines)


def merged(columns: Sequence[AggregateColumn]) -> Iterator[str]:
    """How columns are computed from partial results: merge and finish in one formula."""
    yield from _limited(columns, [_marked(it, _formula(it)) for it in columns[:_COLUMNS]])


def _limited(columns: Sequence[AggregateColumn], lines: list[str]) -> Iterator[str]:
    yield from (shortened(line, 2 * _FORMULA) for line in lines)
    if len(columns) > len(lines):
        yield f"… {len(columns) - len(lines):,} more columns"


def _marked(column: AggregateColumn, formula: str) -> str:
    return f"{column.name} = {shortened(formula, _FORMULA)}{_mark(column)}"


def _mark(column: AggregateColumn) -> str:
    if column.approximate:
        return f" (approximate: {column.approximate})"
    return " (exactness unknown until --analyze-schema)" if column.undecided else ""


def _formula(column: AggregateColumn) -> str:
    finished = {call.name: call.finish for call in column.calls}
    merges = {state.name: state.merge for state in column.states}
    return _filled(_filled(column.finish, finished), merges)


def _filled(sql: str, parts: dict[str, str]) -> str:
    return re.sub(r"\w+", lambda word: parts.get(word[0], word[0]), sql)
