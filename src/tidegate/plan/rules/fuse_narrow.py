"""Run narrow operators in the stage that they read.

    before   s3 [Project] ◀─forward─ s2 [Where] ◀─forward─ s1 [Scan]
    after    s1 [Scan, Where, Project]

A stage boundary remains where rows move, where there is state, where several edges arrive, and
where several readers share rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.plan.numbering import numbered
from tidegate.plan.physical import NARROW, Move, PhysicalStage

if TYPE_CHECKING:
    from tidegate.plan.physical import PhysicalNode, PhysicalPlan


def fuse_narrow(plan: PhysicalPlan) -> PhysicalPlan:
    """Every narrow stage becomes part of the stage it reads, if it is the only reader."""
    fused: dict[str, PhysicalNode] = {}
    homes: dict[str, str] = {}
    for node in plan.nodes:
        upstream = _only_upstream(node, plan)
        if upstream is not None and isinstance(node, PhysicalStage):
            home = fused[homes[upstream]]
            if isinstance(home, PhysicalStage):
                fused[home.id] = replace(home, operators=home.operators + node.operators)
                homes[node.id] = home.id
                continue
        homes[node.id] = node.id
        edges = tuple(replace(edge, upstream=homes[edge.upstream]) for edge in node.inputs)
        fused[node.id] = replace(node, inputs=edges)
    return numbered(replace(plan, nodes=tuple(fused.values())))


def _only_upstream(node: PhysicalNode, plan: PhysicalPlan) -> str | None:
    """The stage that narrow `node` reads, if it is the only reader and moves no rows."""
    if not isinstance(node, PhysicalStage) or not isinstance(node.operators[0], NARROW):
        return None
    edge, *sides = node.inputs
    if sides:
        return None
    alone = len(plan.readers[edge.upstream]) == 1
    return edge.upstream if alone and edge.move is Move.FORWARD else None
