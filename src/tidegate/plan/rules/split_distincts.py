"""Drop repeated rows of each batch before its rows move.

    before   s2 [FinalDistinct] ◀─exchange─ s1
    after    s3 [FinalDistinct] ◀─exchange─ s2 [PartialDistinct] ◀─forward─ s1

Each row crosses the exchange once per batch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.plan.numbering import numbered
from tidegate.plan.physical import FinalDistinct, PartialDistinct, PhysicalEdge, PhysicalStage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.plan.physical import PhysicalNode, PhysicalPlan


def split_distincts(plan: PhysicalPlan) -> PhysicalPlan:
    """Every distinct gets a partial one before its edge."""
    nodes = tuple(part for node in plan.nodes for part in _split(node, plan))
    return numbered(replace(plan, nodes=nodes))


def _split(node: PhysicalNode, plan: PhysicalPlan) -> Iterator[PhysicalNode]:
    match node:
        case PhysicalStage(operators=(FinalDistinct(), *_), inputs=(edge,)):
            upstream, below = plan.by_id[edge.upstream], PartialDistinct()
            if isinstance(upstream, PhysicalStage) and upstream.operators[-1] != below:
                partial = f"partial of {node.id}"
                yield PhysicalStage(
                    partial, (below,), (PhysicalEdge(upstream.id),), upstream.shards
                )
                edge = replace(edge, upstream=partial)
            yield replace(node, inputs=(edge,))
        case _:
            yield node
