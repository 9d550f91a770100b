"""Rank each shard by itself before gathering the rows of all shards.

    before   s2 [FinalTop] ◀─gather─ s1
    after    s3 [FinalTop] ◀─gather─ s2 [PartialTop] ◀─forward─ s1

At most n rows per group and batch are gathered, however many rows the shards have.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.plan.numbering import numbered
from tidegate.plan.physical import FinalTop, Move, PartialTop, PhysicalEdge, PhysicalStage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.plan.physical import PhysicalNode, PhysicalPlan


def split_tops(plan: PhysicalPlan) -> PhysicalPlan:
    """Every top over several shards gets a partial one on each of them."""
    nodes = tuple(part for node in plan.nodes for part in _split(node, plan))
    return numbered(replace(plan, nodes=nodes))


def _split(node: PhysicalNode, plan: PhysicalPlan) -> Iterator[PhysicalNode]:
    match node:
        case PhysicalStage(
            operators=(FinalTop(n=n, by=by, per=per), *_),
            inputs=(PhysicalEdge(move=Move.GATHER) as edge,),
        ):
            upstream, below = plan.by_id[edge.upstream], PartialTop(n, by, per)
            if isinstance(upstream, PhysicalStage) and upstream.operators[-1] != below:
                partial = f"partial of {node.id}"
                yield PhysicalStage(
                    partial, (below,), (PhysicalEdge(upstream.id),), upstream.shards
                )
                edge = replace(edge, upstream=partial)
            yield replace(node, inputs=(edge,))
        case _:
            yield node
