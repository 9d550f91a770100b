"""The physical plan: stages, the barriers between them, and the collector of all sinks.

A plan is one flat tuple of nodes, upstream before downstream, the collector last. Nodes name
their upstreams by id, so a shared node is one node with several readers, and plans of any depth
can be walked, compared and hashed.

    PhysicalStage           operators that run together as one Spark job, on each of its shards
    PhysicalBarrier         holds a barrier signal until every arriving channel has delivered it
    PhysicalResultCollect   collects the results of all sinks; the only node without a reader
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
        EventTime,
        How,
        Order,
        SelectColumn,
        SourceField,
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
class PhysicalEdge:
    """One input of a node. The first edge of a join is its left side, the second its right."""

    upstream: str
    move: Move = Move.FORWARD
    keys: tuple[str, ...] = ()
    """The columns that an exchange hashes; `*` for all of them."""


def qualified_name(function: object) -> str:
    """The module and qualified name of a function, which are the same in every process."""
    module = getattr(function, "__module__", "?")
    return f"{module}.{getattr(function, '__qualname__', type(function).__name__)}"


# --- operators of a stage, in order ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scan:
    """Read these columns of a source; first in its stage, which has no inputs."""

    source: str
    columns: tuple[SourceField, ...]
    event_time: EventTime | None = None
    """What the source's watermarks are computed from, whether the column is read or not."""


@dataclass(frozen=True, slots=True)
class Where:
    """Keep the rows for which `sql` is true."""

    sql: str
    reads: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Project:
    """Compute these columns; the column `*` keeps every input column not replaced by name."""

    columns: tuple[SelectColumn, ...]


@dataclass(frozen=True, slots=True)
class Apply:
    """Call the user's DataFrame → DataFrame function."""

    function: Transformation


@dataclass(frozen=True, slots=True)
class WholeAggregate:
    """An aggregate as lowered; `split_aggregates` replaces all of them."""

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

    Never part of a plan: a stage compacts its state with it, many batches into few.
    """

    by: tuple[str, ...]
    columns: tuple[AggregateColumn, ...]


@dataclass(frozen=True, slots=True)
class PartialDistinct:
    """Of one batch, keep each row once."""


@dataclass(frozen=True, slots=True)
class FinalDistinct:
    """Of all batches, keep each row once; the same rows arrive on the same shard."""


@dataclass(frozen=True, slots=True)
class PartialTop:
    """Of one batch, keep only rows that can still be among the first `n` per `per`."""

    n: int
    by: tuple[Order, ...]
    per: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FinalTop:
    """Of all batches, the first `n` rows per `per`; remaining ties go by the other columns."""

    n: int
    by: tuple[Order, ...]
    per: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PhysicalJoin:
    """Join a left side with a right side once both are complete.

    As the first operator of a stage it reads both; later, its left side is the output of the
    operator before it.
    """

    on: tuple[str, ...]
    how: How


@dataclass(frozen=True, slots=True)
class PhysicalUnion:
    """All rows of all inputs, columns matched by name: these columns, or all when none are named.

    Inputs may have other columns as well; names are compared without case.
    """

    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WriteSink:
    """Publish the rows as the result of a sink; last in its stage."""

    sink: str


PhysicalOperator: TypeAlias = (
    Scan
    | Where
    | Project
    | Apply
    | WholeAggregate
    | PartialAggregate
    | MergeAggregate
    | CompactAggregate
    | PartialDistinct
    | FinalDistinct
    | PartialTop
    | FinalTop
    | PhysicalJoin
    | PhysicalUnion
    | WriteSink
)

NARROW = (Where, Project, Apply, PartialAggregate, PartialDistinct, PartialTop, WriteSink)
"""Operators that process each batch by itself, so that they can run in the stage they read from."""

STATEFUL = (MergeAggregate, FinalDistinct, FinalTop, PhysicalJoin)
"""Operators that produce output only when their input is complete."""

_Input = TypeVar("_Input")


def inputs_by_operator(
    operators: Sequence[PhysicalOperator], inputs: Sequence[_Input]
) -> tuple[tuple[_Input, ...], ...]:
    """For each operator of a stage, the inputs of the stage that this operator reads.

    >>> ranked, joined = FinalTop(1, (), ()), PhysicalJoin(("id",), "inner")
    >>> inputs_by_operator([ranked, joined, joined, WriteSink("best")], ["a", "b", "c"])
    (('a',), ('b',), ('c',), ())
    >>> inputs_by_operator([joined, joined], ["a", "b", "c"])
    (('a', 'b'), ('c',))
    """
    joins = [isinstance(operator, PhysicalJoin) for operator in operators[1:]]
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
    """Operators that run together on each of `shards` slices of the key space.

    Inputs are assigned to operators by order (`inputs_by_operator`). Every join after the first
    operator has the output of the operator before it as its left side, and the next unread input
    as its right side. The first operator reads the inputs before those: none as a scan, two as a
    join, all of them as a union, one otherwise. So [FinalTop, PhysicalJoin, PhysicalJoin,
    WriteSink] with the inputs a, b and c ranks a, joins the result with b, and that with c.

    A stage with a stateful operator produces output only when all its inputs are complete. Behind
    a barrier the inputs are those of the barrier, in the same order: see `PhysicalPlan.arriving`.
    """

    id: str
    operators: tuple[PhysicalOperator, ...]
    inputs: tuple[PhysicalEdge, ...]
    shards: int


@dataclass(frozen=True, slots=True)
class PhysicalBarrier:
    """The input of a fan-in node, with the edges and the number of shards of that node.

    Each shard forwards a barrier once it has arrived on `upstream_count` channels.
    """

    id: str
    inputs: tuple[PhysicalEdge, ...]
    shards: int
    upstream_count: int
    released_by: Release
    bound: Bound


@dataclass(frozen=True, slots=True)
class PhysicalResultCollect:
    """Collects the results of all sinks; one shard."""

    id: str
    inputs: tuple[PhysicalEdge, ...]
    sinks: tuple[str, ...]
    shards: int = 1


PhysicalNode: TypeAlias = PhysicalStage | PhysicalBarrier | PhysicalResultCollect


@dataclass(frozen=True)
class PhysicalPlan:
    """Nodes in topological order, upstream before downstream, the collector last."""

    pipeline: str
    shards: int
    nodes: tuple[PhysicalNode, ...]

    @cached_property
    def by_id(self) -> dict[str, PhysicalNode]:
        """Every node by its id."""
        return {node.id: node for node in self.nodes}

    @cached_property
    def readers(self) -> dict[str, tuple[str, ...]]:
        """The readers of each node, one entry per edge: a self-join's input has the join twice."""
        readers: dict[str, list[str]] = {node.id: [] for node in self.nodes}
        for node in self.nodes:
            for edge in node.inputs:
                readers[edge.upstream].append(node.id)
        return {upstream: tuple(ids) for upstream, ids in readers.items()}

    @property
    def root(self) -> PhysicalNode:
        """The collector, which has no reader."""
        return self.nodes[-1]

    @property
    def stages(self) -> Iterator[PhysicalStage]:
        """All stages, upstream before downstream."""
        return (node for node in self.nodes if isinstance(node, PhysicalStage))

    def arriving(self, node: PhysicalNode) -> tuple[PhysicalEdge, ...]:
        """The edges over which rows reach `node`: those of its barrier, if it has one."""
        uppers = [self.by_id[edge.upstream] for edge in node.inputs]
        guards = [upper for upper in uppers if isinstance(upper, PhysicalBarrier)]
        return guards[0].inputs if guards else node.inputs

    def channels(self, edge: PhysicalEdge) -> int:
        """How many channels arrive over `edge` at each shard of the node that reads it."""
        return 1 if edge.move is Move.FORWARD else self.by_id[edge.upstream].shards

    def upstream_count(self, node: PhysicalNode) -> int:
        """How many channels arrive at each shard of `node`."""
        return sum(self.channels(edge) for edge in node.inputs)
