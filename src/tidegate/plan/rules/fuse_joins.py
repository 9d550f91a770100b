"""Run a join where its left side is made.

    before   s4 [Join, Write] ◀─ s2 [Top], s3      after   s3 [Top, Join, Write] ◀─ s1, s2
             s2 [Top] ◀─gather─ s1

A ranking that is joined with one small table after the other is one job instead of one per table.
The inputs of the stage are those of its first step, then the right side of each further join. It
answers when all of them are complete, as the joins alone would, so this is done on a single shard
only, where nothing moves between the steps. A scan stays a stage of its own: it works on chunks as
they come.

A stage takes `MOST_JOINS` joins at most, so that a job stays of a size that Spark plans quickly.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.plan.numbering import numbered
from tidegate.plan.physical import Join, Move, PhysicalStage, Scan

if TYPE_CHECKING:
    from tidegate.plan.physical import PhysicalNode, PhysicalPlan

MOST_JOINS = 8


def fuse_joins(plan: PhysicalPlan) -> PhysicalPlan:
    """Every join becomes part of the stage on its left, if it is the only reader of that stage."""
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
    """Whether `node` joins rows of a stage that nobody else reads, where they are."""
    if not isinstance(node, PhysicalStage) or not isinstance(node.steps[0], Join):
        return False
    left = node.inputs[0]
    return left.move is Move.FORWARD and len(plan.readers[left.upstream]) == 1


def _together(left: PhysicalNode, join: PhysicalNode) -> PhysicalNode:
    """One stage of both, under the id of the left; the join alone where they do not fit."""
    if not isinstance(left, PhysicalStage) or not isinstance(join, PhysicalStage):
        return join
    if isinstance(left.steps[0], Scan) or not left.shards == join.shards == 1:
        return join
    steps = left.steps + join.steps
    if sum(isinstance(step, Join) for step in steps) > MOST_JOINS:
        return join
    return replace(left, steps=steps, inputs=left.inputs + join.inputs[1:])
