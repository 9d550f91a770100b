"""Lowering: every logical operator becomes a stage of one step, every edge says how rows move."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.pipeline import nodes as declared
from tidegate.plan.numbering import numbered
from tidegate.plan.physical import (
    Aggregate,
    Apply,
    Edge,
    Join,
    Move,
    PhysicalPlan,
    PhysicalResultCollect,
    PhysicalStage,
    Project,
    Scan,
    Top,
    Union,
    Where,
    Write,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.plan.logical import LogicalNode, LogicalPlan
    from tidegate.plan.physical import Step


def lower(plan: LogicalPlan) -> PhysicalPlan:
    """A physical plan that does what the logical plan says, before any rule improved it."""
    stages: dict[str, PhysicalStage] = {}
    for node in plan.nodes:
        upstreams = [stages[upstream] for upstream in node.inputs]
        shards = _shards(node, upstreams, plan.shards)
        edges = tuple(_edge(node, upstream, shards) for upstream in upstreams)
        stages[node.id] = PhysicalStage(node.id, (_step(node.operator),), edges, shards)
    sinks = [node for node in plan.nodes if isinstance(node.operator, declared.Sink)]
    names = tuple(sink.operator.name for sink in sinks if isinstance(sink.operator, declared.Sink))
    collect = PhysicalResultCollect("c", tuple(Edge(sink.id) for sink in sinks), names)
    return numbered(PhysicalPlan(plan.pipeline, plan.shards, (*stages.values(), collect)))


def _shards(node: LogicalNode, upstreams: Sequence[PhysicalStage], default: int) -> int:
    match node.operator:
        case declared.Source():
            return default
        case declared.Aggregate(by=by, shards=shards):
            return (shards or default) if by else 1
        case declared.Top() | declared.Join() | declared.Sink():
            return 1
        case _:
            # Rows of one batch are treated alone, so they stay on their shard; a union of
            # streams that are sharded differently has no common shard to stay on.
            counts = {upstream.shards for upstream in upstreams}
            return counts.pop() if len(counts) == 1 else 1


def _edge(node: LogicalNode, upstream: PhysicalStage, shards: int) -> Edge:
    match node.operator:
        case declared.Aggregate(by=by) if by:
            return Edge(upstream.id, Move.EXCHANGE, by)
        case _:
            gathers = shards == 1 and upstream.shards > 1
            return Edge(upstream.id, Move.GATHER if gathers else Move.FORWARD)


def _step(operator: declared.Node) -> Step:  # noqa: C901, PLR0911 - one line per operator
    match operator:
        case declared.Source():
            return Scan(operator.name, operator.schema, operator.event_time)
        case declared.Filter():
            return Where(operator.condition, operator.reads)
        case declared.Select():
            return Project(operator.columns)
        case declared.Transform():
            return Apply(operator.function)
        case declared.Aggregate():
            return Aggregate(operator.by, operator.columns, operator.exact)
        case declared.Top():
            return Top(operator.n, operator.by, operator.per)
        case declared.Join():
            return Join(operator.on, operator.how)
        case declared.Union():
            return Union()
        case declared.Sink():
            return Write(operator.name)
        case declared.Reference():
            raise AssertionError("a logical plan has no references")
