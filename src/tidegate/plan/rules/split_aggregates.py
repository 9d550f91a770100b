"""Aggregate each batch before its rows move.

    before   s2 [WholeAggregate] ◀─exchange─ s1
    after    s3 [MergeAggregate] ◀─exchange─ s2 [PartialAggregate] ◀─forward─ s1

One row per group and batch crosses the exchange instead of all rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.plan.numbering import numbered
from tidegate.plan.physical import (
    MergeAggregate,
    PartialAggregate,
    PhysicalEdge,
    PhysicalStage,
    WholeAggregate,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.plan.physical import PhysicalNode, PhysicalPlan


def split_aggregates(plan: PhysicalPlan) -> PhysicalPlan:
    """Every aggregate becomes a partial one before its edge and a merging one behind it."""
    nodes = tuple(part for node in plan.nodes for part in _split(node, plan))
    return numbered(replace(plan, nodes=nodes))


def _split(node: PhysicalNode, plan: PhysicalPlan) -> Iterator[PhysicalNode]:
    match node:
        case PhysicalStage(operators=(WholeAggregate() as whole, *rest), inputs=(edge,)):
            upstream = plan.by_id[edge.upstream]
            below = PartialAggregate(whole.by, whole.columns, whole.exact)
            partial = f"partial of {node.id}"
            yield PhysicalStage(partial, (below,), (PhysicalEdge(upstream.id),), upstream.shards)
            above = MergeAggregate(whole.by, whole.columns)
            yield replace(node, operators=(above, *rest), inputs=(replace(edge, upstream=partial),))
        case _:
            yield node
