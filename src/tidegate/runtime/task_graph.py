"""From a physical plan to the graph of tasks that runs it.

Every shard of every node is one task: a stage's processors are made by a workshop, a
`PhysicalBarrier`'s are `BarrierProcessor`s, the collector's is the collecting end. Every edge
becomes as many links as its rows have ways to go.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from tidegate.dataflow import Edge as InputEdge
from tidegate.plan.physical import (
    MONITOR,
    Edge,
    Move,
    PhysicalBarrier,
    PhysicalNode,
    PhysicalPlan,
    PhysicalResultCollect,
    PhysicalStage,
    Scan,
)
from tidegate.runtime.task.processors import BarrierProcessor
from tidegate.runtime.task.task_loop import Processor
from tidegate.store import ChannelName

HEAD = "head"
"""The upstream of tasks that read a source."""


@dataclass(frozen=True, slots=True)
class TaskEdge:
    """One edge of the graph. The order of a processor's links numbers its inputs."""

    upstream: str
    downstream: str
    shard: int | None = None
    """The downstream's shard when the link is part of an exchange; it gets those events only."""
    input: int | None = None
    """Which input of the plan's node it belongs to; by default every link is an input."""


def edges_into(links: Iterable[TaskEdge], name: str) -> tuple[InputEdge, ...]:
    """The input edges of a processor, in order."""
    feeding = (link for link in links if link.downstream == name)
    return tuple(InputEdge(index, link.upstream, link.input) for index, link in enumerate(feeding))


class ProcessorFactory(Protocol):
    """Who makes the processors that do the work."""

    def stage(self, name: str, stage: PhysicalStage, shard: int) -> Processor:
        """The processor for one shard of a stage."""
        ...

    def collector(self, name: str, collect: PhysicalResultCollect) -> Processor:
        """The collecting end, which gets the results of all sinks."""
        ...


@dataclass(frozen=True)
class TaskGraph:
    """The tasks of a plan and how they are linked."""

    plan: PhysicalPlan
    links: tuple[TaskEdge, ...]
    places: Mapping[str, tuple[PhysicalNode, int]]
    """Every task: its node, and which shard of it."""

    @property
    def name(self) -> str:
        """The pipeline's."""
        return self.plan.pipeline

    @cached_property
    def sources(self) -> dict[str, tuple[tuple[str, ...], ...]]:
        """For each source the stages that read it, each as its tasks by shard."""
        readers: dict[str, list[tuple[str, ...]]] = defaultdict(list)
        for stage in self.plan.stages:
            for scan in _scans(stage):
                readers[scan.source].append(tasks(stage))
        return {source: tuple(stages) for source, stages in readers.items()}

    @cached_property
    def monitored(self) -> tuple[str, ...]:
        """The tasks where END passes when the monitor has released it."""
        nodes = (node for node in self.plan.nodes if isinstance(node, PhysicalBarrier))
        return tuple(task for node in nodes if node.released_by == MONITOR for task in tasks(node))

    def tasks_of(self, stages: Sequence[str]) -> frozenset[str]:
        """The tasks of these nodes of the plan, and of the barriers under them."""
        barriers = {edge.upstream for node in self.plan.nodes if node.id in stages
                    for edge in node.inputs
                    if isinstance(self.plan.by_id[edge.upstream], PhysicalBarrier)}  # fmt: skip
        wanted = {*stages, *barriers}
        return frozenset(task for task, (node, _) in self.places.items() if node.id in wanted)

    def processor(self, task: str, factory: ProcessorFactory) -> Processor:
        """A fresh processor for a task."""
        node, shard = self.places[task]
        if isinstance(node, PhysicalStage):
            return factory.stage(task, node, shard)
        if isinstance(node, PhysicalBarrier):
            return BarrierProcessor(task, edges_into(self.links, task))
        return factory.collector(task, node)


def build_task_graph(plan: PhysicalPlan) -> TaskGraph:
    """The tasks and links of a plan, in its order."""
    links = tuple(link for node in plan.nodes for link in _links_into(plan, node))
    places = {
        task_name(node, shard): (node, shard) for node in plan.nodes for shard in range(node.shards)
    }
    return TaskGraph(plan, links, places)


def task_name(node: PhysicalNode, shard: int) -> str:
    """The name of a node's task: its id, and the shard when there are several."""
    return node.id if node.shards == 1 else f"{node.id}/{shard}"


def tasks(node: PhysicalNode) -> tuple[str, ...]:
    """The names of all tasks of a node."""
    return tuple(task_name(node, shard) for shard in range(node.shards))


def _links_into(plan: PhysicalPlan, node: PhysicalNode) -> Iterator[TaskEdge]:
    for shard in range(node.shards):
        for number, edge in enumerate(node.inputs):
            addressed = shard if edge.move is Move.EXCHANGE else None
            for upstream in _upstream_tasks(plan, edge, shard):
                yield TaskEdge(upstream, task_name(node, shard), addressed, number)


def _upstream_tasks(plan: PhysicalPlan, edge: Edge, shard: int) -> tuple[str, ...]:
    upstream = plan.by_id[edge.upstream]
    if edge.move is Move.FORWARD:
        return (task_name(upstream, shard),)
    return tasks(upstream)


def _scans(stage: PhysicalStage) -> Iterator[Scan]:
    return (step for step in stage.steps if isinstance(step, Scan))


def channel_names(links: Iterable[TaskEdge], sources: Iterable[str]) -> list[ChannelName]:
    """The channels of one run of a graph, those from the head to its source tasks included."""
    links = tuple(links)
    receivers = {link.downstream for link in links}
    between = [
        ChannelName(edge.upstream, task, edge.index)
        for task in sorted(receivers)
        for edge in edges_into(links, task)
    ]
    return [*between, *(ChannelName(HEAD, source) for source in sources)]


def shards_by_channel(links: Sequence[TaskEdge], task: str) -> dict[tuple[str, int], int | None]:
    """For each channel out of a task, the shard it leads to."""
    shards: dict[tuple[str, int], int | None] = {}
    for receiver in {link.downstream for link in links}:
        arriving = [link for link in links if link.downstream == receiver]
        for index, link in enumerate(arriving):
            if link.upstream == task:
                shards[receiver, index] = link.shard
    return shards
