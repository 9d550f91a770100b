"""Run a join in the stage of its left side.

    before   s4 [PhysicalJoin, WriteSink] ◀─ s2, s3      s2 [FinalTop] ◀─gather─ s1
    after    s3 [FinalTop, PhysicalJoin, WriteSink] ◀─ s1, s2

A ranking that is joined with several small tables is one job instead of one per table. The inputs
of the stage are those of its first operator, then the right side of each further join. It produces
output when all of them are complete, as the joins alone would, so this is done on a single shard
only, where no rows move between the operators. A scan stays a stage of its own: it processes chunks
as they arrive.

A stage has `MOST_JOINS` joins at most, which bounds the time that Spark needs to plan its job.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.plan.numbering import numbered
from tidegate.plan.physical import Move, PhysicalJoin, PhysicalStage, Scan

if TYPE_CHECKING:
    from tidegate.plan.physical import PhysicalNode, PhysicalPlan

MOST_JOINS = 8


def fuse_joins(plan: PhysicalPlan) -> PhysicalPlan:
    """Every join becomes part of the stage of its left side, if it is that stage's only reader."""
    fused: dict[str, PhysicalNode] = {}
    homes: dict[str, str] = {}
    for node in plan.nodes:
        edges = tuple(replace(edge, upstream=homes[edge.upstream]) for edge in node.inputs)
        here = replace(node, inputs=edges)
        if _joins_alone(node, plan):
            here = _together(fused[edges[0].upstream], here)
        homes[node.id] = here.id
        fused[here.id] = here
    return numbered(replace(plan, nodes=tuple(fused.values())))


def _joins_alone(node: PhysicalNode, plan: PhysicalPlan) -> bool:
    """Whether `node` begins with a join, is the only reader of its left side, and moves no rows."""
    if not isinstance(node, PhysicalStage) or not isinstance(node.operators[0], PhysicalJoin):
        return False
    left = node.inputs[0]
    return left.move is Move.FORWARD and len(plan.readers[left.upstream]) == 1


def _together(left: PhysicalNode, join: PhysicalNode) -> PhysicalNode:
    """One stage of both, under the id of the left; the join alone if they cannot be one stage."""
    if not isinstance(left, PhysicalStage) or not isinstance(join, PhysicalStage):
        return join
    if isinstance(left.operators[0], Scan) or not left.shards == join.shards == 1:
        return join
    operators = left.operators + join.operators
    if sum(isinstance(operator, PhysicalJoin) for operator in operators) > MOST_JOINS:
        return join
    return replace(left, operators=operators, inputs=left.inputs + join.inputs[1:])
