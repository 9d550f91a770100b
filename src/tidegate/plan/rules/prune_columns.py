"""Read only what somebody reads.

Needs travel from the sinks to the sources. A sink and a user's function need everything, and so
does a top, whose ties are decided by all columns; every other step needs what its SQL names,
which is everything again where it names `*`.
Scans, projections and aggregates then drop the rest. A union says which columns it takes, because
its inputs may differ in what else they still carry. Names are compared without case, as Spark
does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from tidegate.pipeline.nodes import STAR
from tidegate.plan.numbering import numbered
from tidegate.plan.physical import (
    Aggregate,
    Apply,
    Join,
    MergeAggregate,
    PartialAggregate,
    PartialTop,
    PhysicalStage,
    Project,
    Scan,
    Top,
    Union,
    Where,
    Write,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidegate.pipeline.nodes import AggregateColumn, Column, Field
    from tidegate.plan.physical import PhysicalNode, PhysicalPlan, Step

Need: TypeAlias = "frozenset[str] | None"
"""Names of columns in lower case; None for all there are."""

_Named = TypeVar("_Named", "Field", "Column", "AggregateColumn")


def prune_columns(plan: PhysicalPlan) -> PhysicalPlan:
    """The same plan, in which nothing computes or reads a column that nobody needs."""
    needs: dict[str, Need] = {node.id: frozenset() for node in plan.nodes}
    pruned: list[PhysicalNode] = []
    for node in reversed(plan.nodes):
        kept, need = _prune(node, needs[node.id])
        pruned.append(kept)
        for edge in node.inputs:
            needs[edge.upstream] = _both(needs[edge.upstream], need)
    return numbered(replace(plan, nodes=tuple(reversed(pruned))))


def _prune(node: PhysicalNode, need: Need) -> tuple[PhysicalNode, Need]:
    """The node without what its readers do not need, and what it needs of its inputs."""
    if not isinstance(node, PhysicalStage):
        return node, need
    steps: list[Step] = []
    beside: Need = frozenset()
    for step in reversed(node.steps):
        kept = _narrowed(step, need)
        steps.append(kept)
        need = _needed(kept, need)
        if isinstance(kept, Join):
            # Its right side is an input of the stage, wherever in the stage the join stands.
            beside = _both(beside, need)
    return replace(node, steps=tuple(reversed(steps))), _both(need, beside)


def _narrowed(step: Step, need: Need) -> Step:
    match step:
        case Scan(columns=fields):
            return replace(step, columns=_kept(fields, need) or fields[:1])
        case Project(columns=columns):
            return replace(step, columns=_kept(columns, need) or columns[:1])
        case Union():
            return replace(step, columns=tuple(sorted(need or ())))
        case Aggregate(by=by):
            at_least = step.columns[:0] if by else step.columns[:1]
            return replace(step, columns=_kept(step.columns, need) or at_least)
        case _:
            return step


def _kept(columns: Sequence[_Named], need: Need) -> tuple[_Named, ...]:
    if need is None:
        return tuple(columns)
    return tuple(it for it in columns if it.name == STAR or it.name.casefold() in need)


def _needed(step: Step, need: Need) -> Need:
    """What `step` needs of its input, to give its readers what they need."""
    match step:
        case Write() | Apply() | Top() | PartialTop():
            return None
        case Union(columns=columns):
            return _names(columns) or None
        case Project(columns=columns):
            return _needed_by_project(columns, need)
        case Aggregate() | PartialAggregate() | MergeAggregate():
            return _reads(step)
        case _:
            return _both(need, _reads(step))


def _reads(step: Step) -> Need:
    """The columns that `step` looks at itself."""
    match step:
        case Where(reads=reads):
            return _read(reads)
        case Aggregate(by=by) | PartialAggregate(by=by):
            return _read(by, *(column.reads for column in step.columns))
        case MergeAggregate(by=by):
            return _names(by, (state.name for it in step.columns for state in it.states))
        case Join(on=on):
            return _names(on)
        case _:
            return frozenset()


def _needed_by_project(columns: Sequence[Column], need: Need) -> Need:
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
    """Columns that SQL reads; a star in an expression, as in `hash(*)`, needs all there are."""
    names = _names(*groups)
    return None if STAR in names else names


def _names(*groups: Iterable[str]) -> frozenset[str]:
    return frozenset(name.casefold() for group in groups for name in group)
