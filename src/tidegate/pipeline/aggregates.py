"""Splits aggregates so that they can be computed from partial results.

An aggregate such as `avg(price) filter (where price > 0)` becomes

    partial   over the rows of one batch:      sum(price) filter (…), count(price) filter (…)
    merge     over all partial results:        sum(avg_sum), sum(avg_count)
    finish    over the merged states:          avg_sum / avg_count

A column may combine several calls (`sum(a) / count(*)`); each call is finished by itself, in the
type Spark gives it, before the column's own expression is computed from them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sqlglot import TokenType, exp

from tidegate.errors import InexactAggregate, UnmergeableAggregate
from tidegate.pipeline.names import is_text
from tidegate.pipeline.nodes import AggregateCall, AggregateColumn, AggregateState
from tidegate.pipeline.recipes import ALIASES, RECIPES, REFUSED, UNKNOWN
from tidegate.pipeline.sql import (
    columns_read,
    functions,
    is_aggregate,
    name_of,
    parse,
    plain_words,
    refuse_changing,
    tokens,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlglot import Token

    from tidegate.errors import SourceLine
    from tidegate.pipeline.recipes import Recipe

_SIMPLE = re.compile(r"\s*(\w+)\s*\(\s*(\w+|\*)\s*\)\s*")


@dataclass(frozen=True, slots=True)
class Grouping:
    """What all columns of one aggregate share."""

    at: SourceLine
    by: tuple[str, ...]
    exact: bool


class _Span(NamedTuple):
    """The position of one aggregate call in the text, and its parts."""

    start: int
    end: int
    function: str
    argument: str
    condition: str | None


def split_columns(columns: Mapping[str, str], grouping: Grouping) -> tuple[AggregateColumn, ...]:
    """Every column split into partial, merge and finish.

    Raises `InvalidSql`, `ForbiddenSql`, `UnmergeableAggregate`, or `InexactAggregate` for an
    aggregate that is approximate for any input.
    """
    taken = {name.casefold() for name in (*grouping.by, *columns)}
    return tuple(_split(name, sql, grouping, taken) for name, sql in columns.items())


def _split(name: str, sql: str, grouping: Grouping, taken: set[str]) -> AggregateColumn:
    spans, reads = _parse_column(name, sql, grouping)
    calls = tuple(_calls(name, sql, spans, taken))
    finish = _finish(sql, spans, calls)
    column = AggregateColumn(name, sql, reads, calls, finish)
    if len(finish) > len(calls[0].name):
        _refuse_ungrouped(column, grouping)
    if grouping.exact and column.approximate:
        instead = f"Leave exact=True out, or compute {name!r} from exact aggregates."
        raise InexactAggregate(grouping.at, name, sql, column.approximate, instead)
    return column


def _parse_column(name: str, sql: str, grouping: Grouping) -> tuple[list[_Span], tuple[str, ...]]:
    """The calls in `sql` and the columns it reads, after all checks of this column alone."""
    if (simple := _simple(sql)) is not None:
        return [simple], () if simple.argument == "*" else (simple.argument,)
    parts = list(parse(sql, grouping.at).walk())
    _refuse_unmergeable(name, sql, parts, grouping.at)
    return list(_spans(sql)), columns_read(parts)


def _simple(sql: str) -> _Span | None:
    """The call of text like `sum(x)`, read without the parser; wide tables have many of them."""
    found = _SIMPLE.fullmatch(sql) if is_text(sql) else None
    if found is None or _canonical(found[1]) not in RECIPES:
        return None
    counts_rows = found[2] == "*" and _canonical(found[1]) == "count"
    if not counts_rows and plain_words(found[2]) is None:
        return None
    return _Span(0, len(sql), _canonical(found[1]), found[2], None)


def _canonical(function: str) -> str:
    return ALIASES.get(function.lower(), function.lower())


# --- what cannot be merged -------------------------------------------------------------------


def _refuse_unmergeable(name: str, sql: str, parts: Sequence[exp.Expr], at: SourceLine) -> None:
    refuse_changing("an aggregate", sql, parts, at)
    aggregates = [call for call in functions(parts) if _is_call(call)]
    if not aggregates:
        instead = "Put the column into `by`, or aggregate it, for example with max(…)."
        raise UnmergeableAggregate(at, name, sql, "it aggregates nothing", instead)
    for call in aggregates:
        reason = _why_not(call)
        if reason is not None:
            raise UnmergeableAggregate(at, name, sql, *reason)


def _is_call(call: exp.Expr) -> bool:
    return is_aggregate(call) or _canonical(name_of(call)) in RECIPES


def _why_not(call: exp.Expr) -> tuple[str, str] | None:
    """Why a call cannot be merged and what to do instead, or None when it can."""
    function = _canonical(name_of(call))
    if function not in RECIPES:
        return REFUSED.get(function, UNKNOWN)
    if call.find(exp.Distinct):
        return REFUSED["distinct"]
    if any(inner is not call and _is_call(inner) for inner in functions(call.walk())):
        return REFUSED["nested"]
    if len(call.args.get("expressions") or ()) > 1 and function != "count":
        return REFUSED["arguments"]
    return REFUSED["arguments"] if call.args.get("accuracy") else None


def _refuse_ungrouped(column: AggregateColumn, grouping: Grouping) -> None:
    """A column beside the calls must be one of `by`: it has many values otherwise."""
    known = {name.casefold() for name in grouping.by}
    known.update(call.name.casefold() for call in column.calls)
    for read in columns_read(parse(column.finish, grouping.at).walk()):
        if read.casefold() not in known:
            reason = f"{read!r} has many values per group"
            instead = f"Put {read!r} into `by`, or aggregate it, for example with max({read})."
            raise UnmergeableAggregate(grouping.at, column.name, column.sql, reason, instead)


# --- finding the calls in the text -----------------------------------------------------------


def _spans(sql: str) -> Iterator[_Span]:
    """Calls in the order of the text, which is split rather than generated from the parsed form."""
    found = tokens(sql)
    position = 0
    while position < len(found) - 1:
        if _opens_call(found, position):
            span, position = _span(sql, found, position)
            yield span
        position += 1


def _opens_call(found: Sequence[Token], position: int) -> bool:
    followed = found[position + 1].token_type is TokenType.L_PAREN
    compared = position > 0 and found[position - 1].text.lower() in {"like", "ilike"}
    return followed and not compared and _canonical(found[position].text) in RECIPES


def _span(sql: str, found: Sequence[Token], position: int) -> tuple[_Span, int]:
    """The call that starts at `position`, and the position of its last token."""
    last = _closing(found, position + 1)
    argument = sql[found[position + 1].end + 1 : found[last].start].strip()
    condition = None
    if _texts(found[last + 1 : last + 4]) == ["filter", "(", "where"]:
        opening, last = last + 3, _closing(found, last + 2)
        condition = sql[found[opening].end + 1 : found[last].start].strip()
    function = _canonical(found[position].text)
    return _Span(found[position].start, found[last].end + 1, function, argument, condition), last


def _closing(found: Sequence[Token], opening: int) -> int:
    depth = 0
    for position in range(opening, len(found)):
        kind = found[position].token_type
        depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
        if depth == 0:
            return position
    raise AssertionError("parsed text has balanced parentheses")


def _texts(found: Sequence[Token]) -> list[str]:
    return [token.text.lower() for token in found]


# --- building the parts ----------------------------------------------------------------------


def _calls(name: str, sql: str, spans: Sequence[_Span], taken: set[str]) -> Iterator[AggregateCall]:
    stem = re.sub(r"\W", "_", name)
    for number, span in enumerate(spans, start=1):
        recipe = RECIPES[span.function]
        call = _fresh(stem if len(spans) == 1 else f"{stem}_{number}", "value", taken)
        states = tuple(_states(call.removesuffix("_value"), recipe, span, taken))
        finish = recipe.finish.format(*(state.name for state in states))
        text = sql[span.start : span.end].strip()
        yield AggregateCall(
            call, span.function, text, span.argument, states, finish, recipe.approximate
        )


def _states(stem: str, recipe: Recipe, span: _Span, taken: set[str]) -> Iterator[AggregateState]:
    condition = "" if span.condition is None else f" filter (where {span.condition})"
    for part in recipe.parts:
        name = _fresh(stem, part.role, taken)
        partial = part.partial.format(span.argument) + condition
        yield AggregateState(name, partial, part.merge.format(name))


def _fresh(stem: str, role: str, taken: set[str]) -> str:
    """A name that no other column of the aggregate has, compared without case as in Spark."""
    name = f"{stem}_{role}"
    while name.casefold() in taken:
        name += "_"
    taken.add(name.casefold())
    return name


def _finish(sql: str, spans: Sequence[_Span], calls: Sequence[AggregateCall]) -> str:
    """`sql` with each call replaced by its name."""
    parts, position = [], 0
    for span, call in zip(spans, calls, strict=True):
        parts += [sql[position : span.start], call.name]
        position = span.end
    return "".join([*parts, sql[position:]]).strip()
