"""Marks aggregates whose last digits depend on the order of rows.

Two passes over the plan: from downstream to upstream, which columns do sums read; from upstream to
downstream, what follows from the declared schemas about the types of those columns only. A sum of
unknown type is marked as undecided until Spark's analyzer has determined the type.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from tidegate.errors import InexactAggregate
from tidegate.pipeline.names import is_identifier
from tidegate.pipeline.nodes import (
    STAR,
    Aggregate,
    AggregateCall,
    AggregateColumn,
    Distinct,
    Filter,
    Join,
    Select,
    SelectColumn,
    Sink,
    Source,
    Top,
    Transform,
    Union,
)
from tidegate.pipeline.recipes import SUMS
from tidegate.pipeline.sql import columns_read, parse
from tidegate.plan.kinds import (
    averaged,
    chosen,
    is_floating,
    kind_of,
    kind_of_plain,
    kind_of_type,
    summed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tidegate.errors import SourceLine
    from tidegate.pipeline.nodes import Operator
    from tidegate.plan.kinds import Kind, Kinds
    from tidegate.plan.logical import LogicalNode

    Floating = Mapping[str, frozenset[str]]
    """By the id of a logical node, the calls that add floating point, as determined by Spark."""

ORDER_OF_ADDITION = "order of addition"

_LIKE_THEIR_ARGUMENT = SUMS | {"min", "max"}
_CALLS: dict[str, Kind] = {
    **dict.fromkeys(("count", "count_if", "approx_count_distinct"), "integer"),
    **dict.fromkeys(("bool_and", "bool_or"), "other"),
}


def mark_as_found(nodes: tuple[LogicalNode, ...], floating: Floating) -> tuple[LogicalNode, ...]:
    """The same nodes, with the sums marked approximate that Spark's analyzer found to be."""

    def marked(node: LogicalNode) -> LogicalNode:
        if not isinstance(node.operator, Aggregate):
            return node
        found = floating.get(node.id, frozenset())
        aggregate = _marked(node.operator, lambda call: call.name in found)
        return replace(node, operator=aggregate)

    return tuple(marked(node) for node in nodes)


def mark_inexact(nodes: tuple[LogicalNode, ...]) -> tuple[LogicalNode, ...]:
    """The same nodes, with every sum of floating point marked approximate.

    Raises `InexactAggregate` for one that was declared with exact=True.
    """
    needed_columns = _needed_columns(nodes)
    known: dict[str, Kinds] = {}
    marked = []
    for node in nodes:
        inputs = [known[upstream] for upstream in node.inputs]
        operator = node.operator
        if isinstance(operator, Aggregate):
            operator = _marked(operator, _judge(operator.at, inputs[0]))
        known[node.id] = _known(operator, needed_columns[node.id], inputs)
        marked.append(replace(node, operator=operator))
    return tuple(marked)


# --- which columns matter --------------------------------------------------------------------


def _needed_columns(nodes: Iterable[LogicalNode]) -> dict[str, set[str]]:
    """For every node, the columns whose kind decides whether a sum is exact."""
    needed_columns: dict[str, set[str]] = {node.id: set() for node in nodes}
    for node in reversed(tuple(nodes)):
        needed = _needed(node.operator, needed_columns[node.id])
        for upstream in node.inputs:
            needed_columns[upstream] |= needed
    return needed_columns


def _needed(operator: Operator, needed_columns: set[str]) -> set[str]:
    """The input columns whose kinds determine those of the `needed_columns` output columns."""
    match operator:
        case Select():
            selected = _selected(operator, needed_columns).values()
            return _folded(read for column in selected for read in column.reads)
        case Aggregate():
            calls = (call for column in operator.columns for call in column.calls)
            texts = (call.argument for call in calls if call.function in _LIKE_THEIR_ARGUMENT)
            arguments = (read for text in texts for read in _reads(text, operator.at))
            return _folded(arguments) | _folded(operator.by)
        case Source() | Filter() | Transform() | Distinct() | Top() | Join() | Union() | Sink():
            return needed_columns
        case _:
            assert_never(operator)


def _selected(select: Select, names: Iterable[str]) -> dict[str, SelectColumn]:
    """The columns of a select under these names; those covered by `*` come from the input."""
    columns = {column.name.casefold(): column for column in select.columns}
    has_star = STAR in columns
    return {it: columns.get(it) or SelectColumn(it, it, (it,) if has_star else ()) for it in names}


def _reads(sql: str, at: SourceLine) -> tuple[str, ...]:
    return (sql,) if is_identifier(sql) else columns_read(parse(sql, at).walk())


def _folded(names: Iterable[str]) -> set[str]:
    return {name.casefold() for name in names}


# --- kinds of these columns ------------------------------------------------------------------


def _known(operator: Operator, needed_columns: set[str], inputs: list[Kinds]) -> Kinds:
    """The known kinds of the `needed_columns` columns of an operator's output."""
    match operator:
        case Source(schema=schema):
            types = {field.name.casefold(): field.type for field in schema}
            return {name: kind_of_type(types[name]) for name in needed_columns if name in types}
        case Select(at=at):
            selected = _selected(operator, needed_columns)
            return {name: _kind_of_text(it.sql, at, inputs[0]) for name, it in selected.items()}
        case Filter() | Distinct() | Top() | Sink():
            return inputs[0]
        case Aggregate(at=at, by=by, columns=columns):
            keys = {name: inputs[0].get(name) for name in _folded(by)}
            needed = [it for it in columns if it.name.casefold() in needed_columns]
            return keys | {it.name.casefold(): _aggregated(it, at, inputs[0]) for it in needed}
        case Union() | Join():
            return {name: _either(operator, [kinds.get(name) for kinds in inputs])
                    for name in needed_columns}  # fmt: skip
        case Transform():
            return {}
        case _:
            assert_never(operator)


def _either(operator: Union | Join, kinds: list[Kind]) -> Kind:
    """A column of a union comes from all inputs, one of a join from the input that has it."""
    return chosen(kinds) if isinstance(operator, Union) else next(filter(None, kinds), None)


def _aggregated(column: AggregateColumn, at: SourceLine, kinds: Kinds) -> Kind:
    calls = {it.name.casefold(): _called(it, at, kinds) for it in column.calls}
    return _kind_of_text(column.finish, at, {**kinds, **calls})


def _called(call: AggregateCall, at: SourceLine, kinds: Kinds) -> Kind:
    if call.function not in _LIKE_THEIR_ARGUMENT:
        return _CALLS.get(call.function)
    kind = _kind_of_text(call.argument, at, kinds)
    if call.function in SUMS:
        return averaged(kind) if call.function == "avg" else summed(kind)
    return kind


def _kind_of_text(sql: str, at: SourceLine, columns: Kinds) -> Kind:
    plain = kind_of_plain(sql, columns)
    return kind_of(parse(sql, at), columns) if plain == "unclear" else plain


# --- marking ---------------------------------------------------------------------------------


def _judge(at: SourceLine, kinds: Kinds) -> Callable[[AggregateCall], bool | None]:
    """Whether a call adds floating point; None where only Spark knows."""

    def judge(call: AggregateCall) -> bool | None:
        kind = _kind_of_text(call.argument, at, kinds)
        return None if kind is None else is_floating(kind)

    return judge


def _marked(aggregate: Aggregate, judge: Callable[[AggregateCall], bool | None]) -> Aggregate:
    columns = tuple(_marked_column(column, aggregate, judge) for column in aggregate.columns)
    return replace(aggregate, columns=columns)


def _marked_column(
    column: AggregateColumn, at: Aggregate, judge: Callable[[AggregateCall], bool | None]
) -> AggregateColumn:
    calls = tuple(_marked_call(call, judge) for call in column.calls)
    if calls == column.calls:
        return column
    marked = replace(column, calls=calls)
    if at.exact and marked.approximate:
        instead = "Declare the column as decimal, or cast it: sum(cast(x as decimal(18,2)))."
        raise InexactAggregate(at.at, column.name, column.sql, marked.approximate, instead)
    return marked


def _marked_call(
    call: AggregateCall, judge: Callable[[AggregateCall], bool | None]
) -> AggregateCall:
    if call.function not in SUMS:
        return call
    floating = judge(call)
    if floating is None:
        return replace(call, undecided=True)
    return replace(call, approximate=ORDER_OF_ADDITION) if floating else call
