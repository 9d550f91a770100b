"""The physical plan: stages, the barriers between them, and the collector of all sinks.

A plan is one flat tuple of nodes, upstream before downstream, the collector last. Nodes name
their upstreams by id, so a shared node is one node with several readers, and no plan is too deep
to walk, compare or hash.

    PhysicalStage           operators that run together as one Spark job, on each of its shards
    PhysicalBarrier         holds a barrier signal until every arriving channel has delivered it
    PhysicalResultCollect   where all sinks meet; the only node that nobody reads
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidegate.pipeline.nodes import (
        AggregateColumn,
        Column,
        EventTime,
        Field,
        How,
        Order,
        Transformation,
    )
    from tidegate.plan.bounds import Bound


class Move(Enum):
    """How rows travel along an edge."""

    FORWARD = "forward"
    """From shard k to shard k: one arriving channel."""
    EXCHANGE = "exchange"
    """From every upstream shard to every downstream shard, by hash of the edge's keys."""
    GATHER = "gather"
    """From every upstream shard to the only downstream shard."""


@dataclass(frozen=True, slots=True)
class Edge:
    """One input of a node. The position of an edge tells a join its left side from its right."""

    upstream: str
    move: Move = Move.FORWARD
    keys: tuple[str, ...] = ()


def qualified_name(function: object) -> str:
    """What is stable about a function from process to process: its module and its name in it."""
    module = getattr(function, "__module__", "?")
    return f"{module}.{getattr(function, '__qualname__', type(function).__name__)}"


# --- steps: what a stage does, in order ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scan:
    """Read these columns of a source; first in its stage, which has no inputs."""

    source: str
    columns: tuple[Field, ...]
    event_time: EventTime | None = None
    """What the source's watermarks are made from, be the column read or not."""


@dataclass(frozen=True, slots=True)
class Where:
    """Keep the rows for which `sql` is true."""

    sql: str
    reads: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Project:
    """Compute these columns; the column `*` keeps every input column not replaced by name."""

    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Apply:
    """Call the user's DataFrame → DataFrame function."""

    function: Transformation


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A whole aggregate, as lowered; `split_aggregates` leaves none of these in a plan."""

    by: tuple[str, ...]
    columns: tuple[AggregateColumn, ...]
    exact: bool


@dataclass(frozen=True, slots=True)
class PartialAggregate:
    """Group one batch: `by` and every state of every column, by the states' `partial`."""

    by: tuple[str, ...]
    columns: tuple[AggregateColumn, ...]
    exact: bool


@dataclass(frozen=True, slots=True)
class MergeAggregate:
    """Group partial results of all batches by `by`, merge their states, finish the columns."""

    by: tuple[str, ...]
    columns: tuple[AggregateColumn, ...]


@dataclass(frozen=True, slots=True)
class CompactAggregate:
    """Group partial results of many batches by `by` and merge their states; they stay partial.

    No plan has it: a stage makes few batches of many by it, of what it keeps.
    """

    by: tuple[str, ...]
    columns: tuple[AggregateColumn, ...]


@dataclass(frozen=True, slots=True)
class PartialTop:
    """Of one batch, keep only rows that can still be among the first `n` per `per`."""

    n: int
    by: tuple[Order, ...]
    per: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Top:
    """Of all batches, the first `n` rows per `per`; remaining ties go by the other columns."""

    n: int
    by: tuple[Order, ...]
    per: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Join:
    """Join a left side with a right side once both are complete.

    First in its stage it reads both; later in a stage its left side is what the step before made.
    """

    on: tuple[str, ...]
    how: How


@dataclass(frozen=True, slots=True)
class Union:
    """All rows of all inputs, columns matched by name: these columns, or all when none are named.

    Inputs may carry other columns as well; their names are compared without case.
    """

    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Write:
    """Publish the rows as the result of a sink; last in its stage."""

    sink: str


Step: TypeAlias = (
    Scan
    | Where
    | Project
    | Apply
    | Aggregate
    | PartialAggregate
    | MergeAggregate
    | CompactAggregate
    | PartialTop
    | Top
    | Join
    | Union
    | Write
)

NARROW = (Where, Project, Apply, PartialAggregate, PartialTop, Write)
"""Steps that treat every batch by itself, so that they can run in the stage they read from."""

STATEFUL = (MergeAggregate, Top, Join)
"""Steps that answer only when their input is complete."""

_Input = TypeVar("_Input")


def inputs_by_step(
    steps: Sequence[Step], inputs: Sequence[_Input]
) -> tuple[tuple[_Input, ...], ...]:
    """For each step of a stage, those of its inputs that the step reads itself.

    >>> ranked, joined = Top(1, (), ()), Join(("id",), "inner")
    >>> inputs_by_step([ranked, joined, joined, Write("best")], ["a", "b", "c"])
    (('a',), ('b',), ('c',), ())
    >>> inputs_by_step([joined, joined], ["a", "b", "c"])
    (('a', 'b'), ('c',))
    """
    joins = [isinstance(step, Join) for step in steps[1:]]
    first = len(inputs) - sum(joins)
    right = iter(inputs[first:])
    return (tuple(inputs[:first]), *((next(right),) if joined else () for joined in joins))


# --- nodes -----------------------------------------------------------------------------------

Release: TypeAlias = Literal[
    "all upstreams", "monitor: every producer closed, everything declared processed"
]
ALL_UPSTREAMS: Release = "all upstreams"
MONITOR: Release = "monitor: every producer closed, everything declared processed"


@dataclass(frozen=True, slots=True)
class PhysicalStage:
    """Steps that run together on each of `shards` slices of the key space.

    Which input is whose follows from the order alone, and `inputs_by_step` tells it. Every join
    after the first step takes what the step before it made as its left side, and the next input
    that nobody has read as its right side. The first step reads the inputs before those: none as
    a scan, two as a join, all that are left as a union, one as anything else. So
    [Top, Join, Join, Write] with the inputs a, b and c ranks a, joins the result with b, and the
    result of that with c.

    A stage with a stateful step anywhere answers only when all its inputs are complete. Behind a
    barrier the inputs are those of the barrier, in the same order: see `PhysicalPlan.arriving`.
    """

    id: str
    steps: tuple[Step, ...]
    inputs: tuple[Edge, ...]
    shards: int


@dataclass(frozen=True, slots=True)
class PhysicalBarrier:
    """Stands under a fan-in, with its edges in their order and its number of shards.

    Each of its shards expects a barrier from `upstream_count` channels before it forwards it.
    """

    id: str
    inputs: tuple[Edge, ...]
    shards: int
    upstream_count: int
    released_by: Release
    bound: Bound


@dataclass(frozen=True, slots=True)
class PhysicalResultCollect:
    """Where the results of all sinks meet; one shard."""

    id: str
    inputs: tuple[Edge, ...]
    sinks: tuple[str, ...]
    shards: int = 1


PhysicalNode: TypeAlias = PhysicalStage | PhysicalBarrier | PhysicalResultCollect


@dataclass(frozen=True)
class PhysicalPlan:
    """Nodes in topological order: whatever a node reads stands before it, the collector last."""

    pipeline: str
    shards: int
    nodes: tuple[PhysicalNode, ...]

    @cached_property
    def by_id(self) -> dict[str, PhysicalNode]:
        """Every node by its id."""
        return {node.id: node for node in self.nodes}

    @cached_property
    def readers(self) -> dict[str, tuple[str, ...]]:
        """Who reads each node: one entry per edge, so a self-join's child has two."""
        readers: dict[str, list[str]] = {node.id: [] for node in self.nodes}
        for node in self.nodes:
            for edge in node.inputs:
                readers[edge.upstream].append(node.id)
        return {upstream: tuple(ids) for upstream, ids in readers.items()}

    @property
    def root(self) -> PhysicalNode:
        """The collector, which nobody reads."""
        return self.nodes[-1]

    @property
    def stages(self) -> Iterator[PhysicalStage]:
        """All stages, upstream before downstream."""
        return (node for node in self.nodes if isinstance(node, PhysicalStage))

    def arriving(self, node: PhysicalNode) -> tuple[Edge, ...]:
        """The edges over which rows reach `node`: its barrier's, if it stands behind one."""
        uppers = [self.by_id[edge.upstream] for edge in node.inputs]
        guards = [upper for upper in uppers if isinstance(upper, PhysicalBarrier)]
        return guards[0].inputs if guards else node.inputs

    def channels(self, edge: Edge) -> int:
        """How many channels arrive over `edge` at each shard of the node that reads it."""
        return 1 if edge.move is Move.FORWARD else self.by_id[edge.upstream].shards

    def upstream_count(self, node: PhysicalNode) -> int:
        """How many channels arrive at each shard of `node`."""
        return sum(self.channels(edge) for edge in node.inputs)
