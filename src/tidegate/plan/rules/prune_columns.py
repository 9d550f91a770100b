"""Read and compute only the columns that are used.

The needed columns are propagated from the sinks to the sources. A sink and a user's function need
every column, and so do a top, whose ties are decided by all columns, and a distinct, which compares
all of them; every other operator needs the columns that its SQL names, which is every column where
it names `*`. Scans, projections and
aggregates then drop the rest. A union lists its columns, because its inputs may differ in the other
columns that they still have. Names are compared without case, as in Spark.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar, assert_never

from tidegate.pipeline.nodes import STAR
from tidegate.plan.numbering import numbered
from tidegate.plan.physical import (
    Apply,
    CompactAggregate,
    FinalDistinct,
    FinalTop,
    MergeAggregate,
    PartialAggregate,
    PartialDistinct,
    PartialTop,
    PhysicalJoin,
    PhysicalStage,
    PhysicalUnion,
    Project,
    Scan,
    Where,
    WholeAggregate,
    WriteSink,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidegate.pipeline.nodes import AggregateColumn, SelectColumn, SourceField
    from tidegate.plan.physical import PhysicalNode, PhysicalOperator, PhysicalPlan

Need: TypeAlias = "frozenset[str] | None"
"""Names of columns in lower case; None for all columns."""

_Named = TypeVar("_Named", "SourceField", "SelectColumn", "AggregateColumn")


def prune_columns(plan: PhysicalPlan) -> PhysicalPlan:
    """The same plan without reading or computing unused columns."""
    needs: dict[str, Need] = {node.id: frozenset() for node in plan.nodes}
    pruned: list[PhysicalNode] = []
    for node in reversed(plan.nodes):
        narrowed, need = _prune(node, needs[node.id])
        pruned.append(narrowed)
        for edge in node.inputs:
            needs[edge.upstream] = _both(needs[edge.upstream], need)
    return numbered(replace(plan, nodes=tuple(reversed(pruned))))


def _prune(node: PhysicalNode, need: Need) -> tuple[PhysicalNode, Need]:
    """The node without the columns that its readers do not need, and what it needs itself."""
    if not isinstance(node, PhysicalStage):
        return node, need
    operators: list[PhysicalOperator] = []
    of_right_sides: Need = frozenset()
    for operator in reversed(node.operators):
        narrowed = _narrowed(operator, need)
        operators.append(narrowed)
        need = _needed(narrowed, need)
        if isinstance(narrowed, PhysicalJoin):
            # The right side is an input of the stage, wherever the join is in it.
            of_right_sides = _both(of_right_sides, need)
    return replace(node, operators=tuple(reversed(operators))), _both(need, of_right_sides)


def _narrowed(operator: PhysicalOperator, need: Need) -> PhysicalOperator:
    match operator:
        case Scan(columns=fields):
            return replace(operator, columns=_kept(fields, need) or fields[:1])
        case Project(columns=columns):
            return replace(operator, columns=_kept(columns, need) or columns[:1])
        case PhysicalUnion():
            return replace(operator, columns=tuple(sorted(need or ())))
        case WholeAggregate(by=by):
            at_least = operator.columns[:0] if by else operator.columns[:1]
            return replace(operator, columns=_kept(operator.columns, need) or at_least)
        case (
            PartialAggregate()
            | MergeAggregate()
            | CompactAggregate()
            | PartialDistinct()
            | FinalDistinct()
            | PartialTop()
            | FinalTop()
        ):
            return operator
        case Where() | Apply() | PhysicalJoin() | WriteSink():
            return operator
        case _:
            assert_never(operator)


def _kept(columns: Sequence[_Named], need: Need) -> tuple[_Named, ...]:
    if need is None:
        return tuple(columns)
    return tuple(it for it in columns if it.name == STAR or it.name.casefold() in need)


def _needed(operator: PhysicalOperator, need: Need) -> Need:  # noqa: C901, PLR0911  one case per operator
    """The input columns that `operator` needs, if its readers need `need`."""
    match operator:
        case WriteSink() | Apply():
            return None
        case FinalDistinct() | PartialDistinct() | FinalTop() | PartialTop():
            return None
        case Scan():
            return need
        case Where(reads=reads):
            return _both(need, _read(reads))
        case PhysicalJoin(on=on):
            return _both(need, _names(on))
        case PhysicalUnion(columns=columns):
            return _names(columns) or None
        case Project(columns=columns):
            return _needed_by_project(columns, need)
        case WholeAggregate(by=by) | PartialAggregate(by=by):
            return _read(by, *(column.reads for column in operator.columns))
        case MergeAggregate(by=by) | CompactAggregate(by=by):
            return _names(by, (state.name for it in operator.columns for state in it.states))
        case _:
            assert_never(operator)


def _needed_by_project(columns: Sequence[SelectColumn], need: Need) -> Need:
    reads = _read(*(column.reads for column in columns))
    if not any(column.name == STAR for column in columns):
        return reads
    if need is None or reads is None:
        return None
    return reads | (need - _names(column.name for column in columns))


def _both(left: Need, right: Need) -> Need:
    if left is None or right is None:
        return None
    return left if right <= left else left | right


def _read(*groups: Iterable[str]) -> Need:
    """Columns that SQL reads; a star in an expression, as in `hash(*)`, needs all columns."""
    names = _names(*groups)
    return None if STAR in names else names


def _names(*groups: Iterable[str]) -> frozenset[str]:
    return frozenset(name.casefold() for group in groups for name in group)
