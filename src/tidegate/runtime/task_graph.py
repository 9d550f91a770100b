"""From a physical plan to the graph of tasks that runs it.

Every shard of every node is one task. A `ProcessorFactory` builds the processors of stages and of
the result collector; a `PhysicalBarrier` becomes an `InputGate`. An edge of the plan becomes
one task edge for every pair of tasks that its rows may travel between.
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
    Move,
    PhysicalBarrier,
    PhysicalEdge,
    PhysicalNode,
    PhysicalPlan,
    PhysicalResultCollect,
    PhysicalStage,
    Scan,
)
from tidegate.runtime.task.input_gate import InputGate
from tidegate.runtime.task.processor import Processor
from tidegate.store import ChannelName

HEAD = "head"
"""The upstream of tasks that read a source."""


@dataclass(frozen=True, slots=True)
class TaskEdge:
    """An edge between two tasks. The order of a task's incoming edges numbers its inputs."""

    upstream: str
    downstream: str
    shard: int | None = None
    """The downstream shard if the edge is part of an exchange: only its events are sent."""
    input: int | None = None
    """The input of the plan's node that it belongs to; by default every edge is an input."""


def edges_into(edges: Iterable[TaskEdge], name: str) -> tuple[InputEdge, ...]:
    """The input edges of a processor, in order."""
    feeding = (edge for edge in edges if edge.downstream == name)
    return tuple(InputEdge(index, edge.upstream, edge.input) for index, edge in enumerate(feeding))


class ProcessorFactory(Protocol):
    """Builds the processors of stages and of the result collector."""

    def stage(self, name: str, stage: PhysicalStage, shard: int) -> Processor:
        """The processor for one shard of a stage."""
        ...

    def collector(self, name: str, collect: PhysicalResultCollect) -> Processor:
        """The processor that collects the results of all sinks."""
        ...


@dataclass(frozen=True)
class TaskGraph:
    """The tasks of a plan and the edges between them."""

    plan: PhysicalPlan
    edges: tuple[TaskEdge, ...]
    tasks: Mapping[str, tuple[PhysicalNode, int]]
    """By task name: its node and shard."""

    @property
    def name(self) -> str:
        """The name of the pipeline."""
        return self.plan.pipeline

    @cached_property
    def sources(self) -> dict[str, tuple[tuple[str, ...], ...]]:
        """By source: the stages that read it, each as the names of its tasks by shard."""
        readers: dict[str, list[tuple[str, ...]]] = defaultdict(list)
        for stage in self.plan.stages:
            for scan in _scans(stage):
                readers[scan.source].append(task_names(stage))
        return {source: tuple(stages) for source, stages in readers.items()}

    @cached_property
    def monitored(self) -> tuple[str, ...]:
        """The tasks that forward END only after the monitor's release."""
        nodes = (node for node in self.plan.nodes if isinstance(node, PhysicalBarrier))
        return tuple(
            task for node in nodes if node.released_by == MONITOR for task in task_names(node)
        )

    def tasks_of(self, stages: Sequence[str]) -> frozenset[str]:
        """The tasks of these nodes of the plan, and of the barriers under them."""
        barriers = {edge.upstream for node in self.plan.nodes if node.id in stages
                    for edge in node.inputs
                    if isinstance(self.plan.by_id[edge.upstream], PhysicalBarrier)}  # fmt: skip
        nodes = {*stages, *barriers}
        return frozenset(task for task, (node, _) in self.tasks.items() if node.id in nodes)

    def processor(self, task: str, factory: ProcessorFactory) -> Processor:
        """A fresh processor for a task."""
        node, shard = self.tasks[task]
        if isinstance(node, PhysicalStage):
            return factory.stage(task, node, shard)
        if isinstance(node, PhysicalBarrier):
            return InputGate(task, edges_into(self.edges, task))
        return factory.collector(task, node)


def build_task_graph(plan: PhysicalPlan) -> TaskGraph:
    """The tasks and edges of a plan, in plan order."""
    edges = tuple(edge for node in plan.nodes for edge in _edges_into_node(plan, node))
    tasks = {
        task_name(node, shard): (node, shard) for node in plan.nodes for shard in range(node.shards)
    }
    return TaskGraph(plan, edges, tasks)


def task_name(node: PhysicalNode, shard: int) -> str:
    """The name of a node's task: its id, and the shard when there are several."""
    return node.id if node.shards == 1 else f"{node.id}/{shard}"


def task_names(node: PhysicalNode) -> tuple[str, ...]:
    """The names of all tasks of a node."""
    return tuple(task_name(node, shard) for shard in range(node.shards))


def _edges_into_node(plan: PhysicalPlan, node: PhysicalNode) -> Iterator[TaskEdge]:
    for shard in range(node.shards):
        for number, edge in enumerate(node.inputs):
            addressed = shard if edge.move is Move.EXCHANGE else None
            for upstream in _upstream_tasks(plan, edge, shard):
                yield TaskEdge(upstream, task_name(node, shard), addressed, number)


def _upstream_tasks(plan: PhysicalPlan, edge: PhysicalEdge, shard: int) -> tuple[str, ...]:
    upstream = plan.by_id[edge.upstream]
    if edge.move is Move.FORWARD:
        return (task_name(upstream, shard),)
    return task_names(upstream)


def _scans(stage: PhysicalStage) -> Iterator[Scan]:
    return (operator for operator in stage.operators if isinstance(operator, Scan))


def channel_names(edges: Iterable[TaskEdge], sources: Iterable[str]) -> list[ChannelName]:
    """The channels of one run of a graph, those from the head to its source tasks included."""
    edges = tuple(edges)
    receivers = {edge.downstream for edge in edges}
    between = [
        ChannelName(edge.upstream, task, edge.index)
        for task in sorted(receivers)
        for edge in edges_into(edges, task)
    ]
    return [*between, *(ChannelName(HEAD, source) for source in sources)]


def shards_by_channel(edges: Sequence[TaskEdge], task: str) -> dict[tuple[str, int], int | None]:
    """For each channel out of a task, the shard of its receiver."""
    shards: dict[tuple[str, int], int | None] = {}
    for receiver in {edge.downstream for edge in edges}:
        arriving = [edge for edge in edges if edge.downstream == receiver]
        for index, edge in enumerate(arriving):
            if edge.upstream == task:
                shards[receiver, index] = edge.shard
    return shards
