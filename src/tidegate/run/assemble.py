"""From a physical plan to the graph of processors that runs it.

Every shard of every node becomes one processor: a stage's are made by the caller, a
`PhysicalBarrier`'s are `BarrierProcessor`s, the collector's is the collecting end. Every edge
becomes as many links as its rows have ways to go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from tidegate.plan.physical import (
    Edge,
    Move,
    PhysicalBarrier,
    PhysicalNode,
    PhysicalPlan,
    PhysicalResultCollect,
    PhysicalStage,
    Scan,
)
from tidegate.run.live import LivePipeline
from tidegate.run.processors import BarrierProcessor
from tidegate.run.step import Processor
from tidegate.run.wiring import Link, edges_into
from tidegate.signals.channel import DEFAULT_CAPACITY


class Workshop(Protocol):
    """Who makes the processors that do the work."""

    def stage(self, name: str, stage: PhysicalStage, shard: int) -> Processor:
        """The processor for one shard of a stage."""
        ...

    def collector(self, name: str, collect: PhysicalResultCollect) -> Processor:
        """The collecting end, which gets the results of all sinks."""
        ...


@dataclass(frozen=True)
class Assembly:
    """Everything a live pipeline is made of."""

    name: str
    processors: tuple[Processor, ...]
    links: tuple[Link, ...]
    sources: dict[str, tuple[str, ...]]
    """For each source the tasks that read it, one per shard."""

    def start(self, capacity: int = DEFAULT_CAPACITY) -> LivePipeline:
        """Bring it to life."""
        return LivePipeline(self.name, self.processors, self.links, self.sources, capacity)


def assemble(plan: PhysicalPlan, workshop: Workshop) -> Assembly:
    """The processors and links of a plan, in its order."""
    links = tuple(link for node in plan.nodes for link in _links_into(plan, node))
    processors = tuple(
        _processor(node, shard, links, workshop)
        for node in plan.nodes
        for shard in range(node.shards)
    )
    sources = {scan.source: tasks(stage) for stage in plan.stages for scan in _scans(stage)}
    return Assembly(plan.pipeline, processors, links, sources)


def task_name(node: PhysicalNode, shard: int) -> str:
    """The name of a node's processor: its id, and the shard when there are several."""
    return node.id if node.shards == 1 else f"{node.id}/{shard}"


def tasks(node: PhysicalNode) -> tuple[str, ...]:
    """The names of all processors of a node."""
    return tuple(task_name(node, shard) for shard in range(node.shards))


def _processor(
    node: PhysicalNode, shard: int, links: Sequence[Link], workshop: Workshop
) -> Processor:
    name = task_name(node, shard)
    if isinstance(node, PhysicalStage):
        return workshop.stage(name, node, shard)
    if isinstance(node, PhysicalBarrier):
        return BarrierProcessor(name, edges_into(links, name))
    return workshop.collector(name, node)


def _links_into(plan: PhysicalPlan, node: PhysicalNode) -> Iterator[Link]:
    for shard in range(node.shards):
        for number, edge in enumerate(node.inputs):
            addressed = shard if edge.move is Move.EXCHANGE else None
            for upstream in _upstream_tasks(plan, edge, shard):
                yield Link(upstream, task_name(node, shard), addressed, number)


def _upstream_tasks(plan: PhysicalPlan, edge: Edge, shard: int) -> tuple[str, ...]:
    upstream = plan.by_id[edge.upstream]
    if edge.move is Move.FORWARD:
        return (task_name(upstream, shard),)
    return tasks(upstream)


def _scans(stage: PhysicalStage) -> Iterator[Scan]:
    return (step for step in stage.steps if isinstance(step, Scan))
