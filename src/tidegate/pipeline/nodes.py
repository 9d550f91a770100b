"""The values a declaration consists of: frozen operators, each with the user's source line.

A node points at the nodes it reads. Nodes are compared by identity, so a stream that is used
twice stays one node, and comparing, hashing or printing a node never walks its upstreams.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, assert_never

if TYPE_CHECKING:
    from tidegate.errors import SourceLine

How: TypeAlias = Literal["inner", "left", "right", "full", "semi", "anti"]
HOWS: tuple[How, ...] = ("inner", "left", "right", "full", "semi", "anti")

Transformation: TypeAlias = Callable[[Any], Any]
"""A stateless DataFrame → DataFrame function; typed loosely because Spark is not imported here."""

STAR = "*"
"""The name and SQL of the column that stands for every column of the input."""


@dataclass(frozen=True, slots=True)
class SourceField:
    """One column of a source: its name and its Spark SQL type, such as `decimal(10,2)`."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class EventTime:
    """The column with the event time of a source's rows, and how late a row may arrive."""

    column: str
    delay: int
    """Milliseconds."""

    def __str__(self) -> str:
        return f"event_time={self.column} delay={self.delay / 1000:g} s"


@dataclass(frozen=True, slots=True)
class SelectColumn:
    """One column of a select: `sql` under a name. `reads` are the input columns of `sql`, `*` for
    all of them.

    The column named `*` stands for all input columns that no other column of the select
    replaces by name.
    """

    name: str
    sql: str
    reads: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Order:
    """One sort key of a top: an SQL expression and its direction, nulls where Spark puts them."""

    sql: str
    descending: bool
    reads: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.sql} {'desc' if self.descending else 'asc'}"


@dataclass(frozen=True, slots=True)
class AggregateState:
    """One column of a partial result.

    `partial` is SQL over input rows, `merge` is SQL over rows of partial results that gives the
    same state for all of them together.
    """

    name: str
    partial: str
    merge: str


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One aggregate call, split so that it can be computed from partial results.

    `finish` is SQL over the merged states. It is to be cast to the type Spark gives `sql` itself:
    merging widens decimals, and what is computed from a call must start from Spark's own type.
    Where a plain cast is not exact enough (`avg` of decimals rounds twice), `function` names the
    aggregate, so that it can be finished in another way from the same states. `undecided` marks
    sums of which only Spark knows whether they add floating point.
    """

    name: str
    function: str
    sql: str
    argument: str
    states: tuple[AggregateState, ...]
    finish: str
    approximate: str | None = None
    undecided: bool = False


@dataclass(frozen=True, slots=True)
class AggregateColumn:
    """One column of an aggregate: `finish` is SQL over finished calls and grouping columns.

    `sql` is what the user wrote; its type in Spark is the type of the column.
    """

    name: str
    sql: str
    reads: tuple[str, ...]
    calls: tuple[AggregateCall, ...]
    finish: str

    @property
    def states(self) -> tuple[AggregateState, ...]:
        """The columns of its partial results."""
        return tuple(state for call in self.calls for state in call.states)

    @property
    def approximate(self) -> str | None:
        """Why the value may differ between runs over the same rows; None if it cannot."""
        reasons = dict.fromkeys(call.approximate for call in self.calls if call.approximate)
        return ", ".join(reasons) or None

    @property
    def undecided(self) -> bool:
        """Whether Spark's analyzer has yet to decide if it is exact."""
        return self.approximate is None and any(call.undecided for call in self.calls)


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Rows that clients deliver in chunks."""

    at: SourceLine = field(repr=False)
    name: str
    schema: tuple[SourceField, ...] = field(repr=False)
    event_time: EventTime | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Filter:
    """The rows for which `condition` is true."""

    at: SourceLine = field(repr=False)
    input: Node = field(repr=False)
    condition: str
    reads: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Select:
    """Named columns, computed row by row."""

    at: SourceLine = field(repr=False)
    input: Node = field(repr=False)
    columns: tuple[SelectColumn, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Transform:
    """The result of a user's function over any part of the rows; opaque to the planner."""

    at: SourceLine = field(repr=False)
    input: Node = field(repr=False)
    function: Transformation


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate:
    """One row per distinct `by`; with an empty `by`, exactly one row. `exact` refuses rounding."""

    at: SourceLine = field(repr=False)
    input: Node = field(repr=False)
    by: tuple[str, ...]
    columns: tuple[AggregateColumn, ...]
    shards: int | None
    exact: bool


@dataclass(frozen=True, slots=True, eq=False)
class Distinct:
    """Each row once; rows are the same if all of their columns are, nulls included."""

    at: SourceLine = field(repr=False)
    input: Node = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Top:
    """The first `n` rows per distinct `per` in the order `by`.

    Rows that tie in `by` are ordered by their remaining columns, so that the same rows are kept
    whatever the sharding.
    """

    at: SourceLine = field(repr=False)
    input: Node = field(repr=False)
    n: int
    by: tuple[Order, ...]
    per: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Join:
    """Pairs of rows equal in `on`; the key columns appear once, as in SQL's USING."""

    at: SourceLine = field(repr=False)
    left: Node = field(repr=False)
    right: Node = field(repr=False)
    on: tuple[str, ...]
    how: How


@dataclass(frozen=True, slots=True, eq=False)
class Union:
    """All rows of all inputs, duplicates included, columns matched by name."""

    at: SourceLine = field(repr=False)
    inputs: tuple[Node, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """The stream that carries this name, which may be declared later or in another module."""

    at: SourceLine = field(repr=False)
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Sink:
    """A named result of the pipeline."""

    at: SourceLine = field(repr=False)
    input: Node = field(repr=False)
    name: str


Operator: TypeAlias = (
    Source | Filter | Select | Transform | Aggregate | Distinct | Top | Join | Union | Sink
)
"""What a logical plan consists of, where references are resolved."""

Node: TypeAlias = Operator | Reference


def inputs_of(node: Node) -> tuple[Node, ...]:
    """The nodes that `node` reads, in order; a join reads its left side first."""
    match node:
        case Source() | Reference():
            return ()
        case Join(left=left, right=right):
            return (left, right)
        case Union(inputs=inputs):
            return inputs
        case Filter() | Select() | Transform() | Aggregate() | Distinct() | Top() | Sink():
            return (node.input,)
        case _:
            assert_never(node)
