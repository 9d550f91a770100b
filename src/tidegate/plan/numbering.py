"""Stable ids: numbers that depend only on the shape of a plan.

Stages are `s1`, `s2`, … with upstreams first; the collector is `c`; the barrier under stage `s4`
is `b4`, the one under the collector `bc`. Inserting barriers therefore renames nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.pipeline.graph import upstream_first
from tidegate.plan.physical import PhysicalBarrier, PhysicalPlan, PhysicalStage

if TYPE_CHECKING:
    from tidegate.plan.physical import PhysicalNode


def numbered(plan: PhysicalPlan) -> PhysicalPlan:
    """The same plan with canonical order and ids, without nodes that the root does not reach."""
    order = upstream_first([plan.root.id], lambda it: [e.upstream for e in plan.by_id[it].inputs])
    nodes = [plan.by_id[old] for old in order]
    ids = _ids(nodes)
    return replace(plan, nodes=tuple(_renamed(node, ids) for node in nodes))


def _ids(nodes: list[PhysicalNode]) -> dict[str, str]:
    stages = (node.id for node in nodes if isinstance(node, PhysicalStage))
    ids = {old: f"s{number}" for number, old in enumerate(stages, start=1)}
    ids[nodes[-1].id] = "c"
    barriers = {node.id for node in nodes if isinstance(node, PhysicalBarrier)}
    for node in nodes:
        for edge in node.inputs:
            if edge.upstream in barriers:
                ids[edge.upstream] = "b" + ids[node.id].removeprefix("s")
    return ids


def _renamed(node: PhysicalNode, ids: dict[str, str]) -> PhysicalNode:
    edges = tuple(replace(edge, upstream=ids[edge.upstream]) for edge in node.inputs)
    return replace(node, id=ids[node.id], inputs=edges)
