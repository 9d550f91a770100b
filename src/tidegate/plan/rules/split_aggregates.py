"""Aggregate what is already in one place before moving it.

    before   s2 [Aggregate] ◀─exchange─ s1
    after    s3 [MergeAggregate] ◀─exchange─ s2 [PartialAggregate] ◀─forward─ s1

What crosses the exchange is one row per group and batch instead of all rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.plan.numbering import numbered
from tidegate.plan.physical import (
    Aggregate,
    Edge,
    MergeAggregate,
    PartialAggregate,
    PhysicalStage,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.plan.physical import PhysicalNode, PhysicalPlan


def split_aggregates(plan: PhysicalPlan) -> PhysicalPlan:
    """Every aggregate becomes a partial one below its edge and a merging one above."""
    nodes = tuple(part for node in plan.nodes for part in _split(node, plan))
    return numbered(replace(plan, nodes=nodes))


def _split(node: PhysicalNode, plan: PhysicalPlan) -> Iterator[PhysicalNode]:
    match node:
        case PhysicalStage(steps=(Aggregate() as whole, *rest), inputs=(edge,)):
            upstream = plan.by_id[edge.upstream]
            below = PartialAggregate(whole.by, whole.columns, whole.exact)
            partial = f"partial of {node.id}"
            yield PhysicalStage(partial, (below,), (Edge(upstream.id),), upstream.shards)
            above = MergeAggregate(whole.by, whole.columns)
            yield replace(node, steps=(above, *rest), inputs=(replace(edge, upstream=partial),))
        case _:
            yield node
