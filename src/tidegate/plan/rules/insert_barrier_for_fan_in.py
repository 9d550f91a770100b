"""Put an explicit barrier under every node where several channels arrive.

    before   s3 [PhysicalJoin] ◀─ s1, s2
    after    s3 [PhysicalJoin] ◀─ b3 PhysicalBarrier(upstream_count=2) ◀─ s1, s2

The node above then reads one ordered channel, in which every barrier signal is already aligned. An
aggregate and a distinct have a barrier even with a single channel: their results are released by
the monitor, and the barrier node holds the end of a run until that release.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.plan.bounds import ALIGNMENT_TIMEOUT, RUN_DEADLINE
from tidegate.plan.numbering import numbered
from tidegate.plan.physical import (
    ALL_UPSTREAMS,
    MONITOR,
    FinalDistinct,
    MergeAggregate,
    PhysicalBarrier,
    PhysicalEdge,
    PhysicalStage,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.plan.physical import PhysicalNode, PhysicalPlan


def insert_barrier_for_fan_in(plan: PhysicalPlan) -> PhysicalPlan:
    """Exactly one barrier per fan-in, for any number of readers and repeated inputs."""
    nodes = tuple(part for node in plan.nodes for part in _with_barrier(node, plan))
    return numbered(replace(plan, nodes=nodes))


def _with_barrier(node: PhysicalNode, plan: PhysicalPlan) -> Iterator[PhysicalNode]:
    if not _is_fan_in(node, plan):
        yield node
        return
    released_by, bound = (
        (MONITOR, RUN_DEADLINE) if _merges(node) else (ALL_UPSTREAMS, ALIGNMENT_TIMEOUT)
    )
    count = plan.upstream_count(node)
    barrier = f"barrier of {node.id}"
    yield PhysicalBarrier(barrier, node.inputs, node.shards, count, released_by, bound)
    yield replace(node, inputs=(PhysicalEdge(barrier),))


def _is_fan_in(node: PhysicalNode, plan: PhysicalPlan) -> bool:
    if isinstance(node, PhysicalBarrier) or _has_barrier(node, plan):
        return False
    return plan.upstream_count(node) > 1 or _merges(node)


def _has_barrier(node: PhysicalNode, plan: PhysicalPlan) -> bool:
    return any(isinstance(plan.by_id[edge.upstream], PhysicalBarrier) for edge in node.inputs)


def _merges(node: PhysicalNode) -> bool:
    """Whether it makes its result of partial results that may be exchanged."""
    merging = MergeAggregate | FinalDistinct
    return isinstance(node, PhysicalStage) and isinstance(node.operators[0], merging)
