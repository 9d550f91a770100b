"""Lowering: each logical operator becomes a stage of its own, each edge states how rows move."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from tidegate.pipeline.nodes import (
    STAR,
    Aggregate,
    Distinct,
    Filter,
    Join,
    Select,
    Sink,
    Source,
    Top,
    Transform,
    Union,
)
from tidegate.plan.numbering import numbered
from tidegate.plan.physical import (
    Apply,
    FinalDistinct,
    FinalTop,
    Move,
    PhysicalEdge,
    PhysicalJoin,
    PhysicalPlan,
    PhysicalResultCollect,
    PhysicalStage,
    PhysicalUnion,
    Project,
    Scan,
    Where,
    WholeAggregate,
    WriteSink,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.pipeline.nodes import Operator
    from tidegate.plan.logical import LogicalPlan
    from tidegate.plan.physical import PhysicalOperator


def lower(plan: LogicalPlan) -> PhysicalPlan:
    """A physical plan equivalent to the logical plan, before any rule is applied."""
    stages: dict[str, PhysicalStage] = {}
    for node in plan.nodes:
        upstreams = [stages[upstream] for upstream in node.inputs]
        shards = _shards(node.operator, upstreams, plan.shards)
        edges = tuple(_edge(node.operator, upstream, shards) for upstream in upstreams)
        stages[node.id] = PhysicalStage(node.id, (_lowered(node.operator),), edges, shards)
    sinks = {node.id: node.operator.name for node in plan.nodes if isinstance(node.operator, Sink)}
    edges = tuple(PhysicalEdge(sink) for sink in sinks)
    collect = PhysicalResultCollect("c", edges, tuple(sinks.values()))
    return numbered(PhysicalPlan(plan.pipeline, plan.shards, (*stages.values(), collect)))


def _shards(operator: Operator, upstreams: Sequence[PhysicalStage], default: int) -> int:
    match operator:
        case Source() | Distinct():
            return default
        case Aggregate(by=by, shards=shards):
            return (shards or default) if by else 1
        case Top() | Join() | Sink():
            return 1
        case Filter() | Select() | Transform() | Union():
            # Each batch is processed by itself, so its rows stay on their shard. The inputs of a
            # union may have different numbers of shards; then it has one.
            counts = {upstream.shards for upstream in upstreams}
            return counts.pop() if len(counts) == 1 else 1
        case _:
            assert_never(operator)


def _edge(operator: Operator, upstream: PhysicalStage, shards: int) -> PhysicalEdge:
    keys = _exchange_keys(operator)
    if keys:
        return PhysicalEdge(upstream.id, Move.EXCHANGE, keys)
    gathers = shards == 1 and upstream.shards > 1
    return PhysicalEdge(upstream.id, Move.GATHER if gathers else Move.FORWARD)


def _exchange_keys(operator: Operator) -> tuple[str, ...]:
    """The columns by which rows move to the shard of their key; none if they do not."""
    match operator:
        case Aggregate(by=by):
            return by
        case Distinct():
            return (STAR,)
        case Source() | Filter() | Select() | Transform() | Top() | Join() | Union() | Sink():
            return ()
        case _:
            assert_never(operator)


def _lowered(operator: Operator) -> PhysicalOperator:  # noqa: C901, PLR0911  one case per operator
    match operator:
        case Source():
            return Scan(operator.name, operator.schema, operator.event_time)
        case Filter():
            return Where(operator.condition, operator.reads)
        case Select():
            return Project(operator.columns)
        case Transform():
            return Apply(operator.function)
        case Aggregate():
            return WholeAggregate(operator.by, operator.columns, operator.exact)
        case Distinct():
            return FinalDistinct()
        case Top():
            return FinalTop(operator.n, operator.by, operator.per)
        case Join():
            return PhysicalJoin(operator.on, operator.how)
        case Union():
            return PhysicalUnion()
        case Sink():
            return WriteSink(operator.name)
        case _:
            assert_never(operator)
