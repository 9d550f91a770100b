"""The logical plan: the declaration as one graph, checked as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tidegate.errors import CyclicPipeline, PipelineWithoutSink, UnknownStream, UnreadSource
from tidegate.pipeline.graph import CycleFound, upstream_first
from tidegate.pipeline.nodes import Reference, Sink, inputs_of
from tidegate.pipeline.stream import describe_cycle
from tidegate.plan.inexact import mark_as_found, mark_inexact

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidegate.pipeline import Pipeline
    from tidegate.pipeline.nodes import Node, Operator
    from tidegate.plan.inexact import Floating


@dataclass(frozen=True, slots=True)
class LogicalNode:
    """One declared operator under an id; `inputs` are ids, in the order of the operator's own.

    References are resolved: `inputs` name the operators behind them.
    """

    id: str
    operator: Operator
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class LogicalPlan:
    """Operators in topological order, upstream before downstream."""

    pipeline: str
    shards: int
    nodes: tuple[LogicalNode, ...]

    @cached_property
    def by_id(self) -> dict[str, LogicalNode]:
        """Every operator by its id."""
        return {node.id: node for node in self.nodes}

    @property
    def sinks(self) -> tuple[LogicalNode, ...]:
        """The results, in the order of the plan."""
        return tuple(node for node in self.nodes if isinstance(node.operator, Sink))


def logical_plan(
    pipeline: Pipeline, *, shards: int | None = None, floating: Floating | None = None
) -> LogicalPlan:
    """The plan of everything that leads to a sink; `shards` overrides the pipeline's own.

    Which sums are exact follows from the declaration, or from `floating` if Spark's analyzer has
    determined it. Raises a `DeclarationError` for mistakes of the declaration as a whole: a cycle,
    a reference to an undeclared stream, no sink, an unread source, an inexact aggregate.
    """
    if not pipeline.sinks:
        raise PipelineWithoutSink(pipeline.at, pipeline.name)
    operators = _operators(pipeline)
    _refuse_unread(pipeline, operators)
    nodes = _numbered(operators, pipeline)
    marked = mark_inexact(nodes) if floating is None else mark_as_found(nodes, floating)
    return LogicalPlan(pipeline.name, shards or pipeline.shards, marked)


def _operators(pipeline: Pipeline) -> list[Node]:
    def reads(node: Node) -> Iterable[Node]:
        return [_target(pipeline, node)] if isinstance(node, Reference) else inputs_of(node)

    try:
        return upstream_first(pipeline.sinks.values(), reads)
    except CycleFound as cycle:
        raise CyclicPipeline(cycle.nodes[0].at, describe_cycle(cycle.nodes)) from None


def _target(pipeline: Pipeline, reference: Reference) -> Node:
    if reference.name not in pipeline.streams:
        raise UnknownStream(reference.at, pipeline.name, reference.name)
    return pipeline.streams[reference.name]


def _refuse_unread(pipeline: Pipeline, operators: list[Node]) -> None:
    read = set(operators)
    for source in pipeline.sources.values():
        if source not in read:
            raise UnreadSource(source.at, pipeline.name, source.name)


def _numbered(operators: list[Node], pipeline: Pipeline) -> tuple[LogicalNode, ...]:
    ids: dict[Node, str] = {}
    nodes: list[LogicalNode] = []
    for operator in operators:
        if isinstance(operator, Reference):
            ids[operator] = ids[_target(pipeline, operator)]
            continue
        ids[operator] = f"n{len(nodes) + 1}"
        inputs = tuple(ids[upstream] for upstream in inputs_of(operator))
        nodes.append(LogicalNode(ids[operator], operator, inputs))
    return tuple(nodes)
