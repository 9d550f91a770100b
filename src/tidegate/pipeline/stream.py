"""Streams: rows at one point of a pipeline, with the operators that users apply to them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidegate.errors import (
    CyclicPipeline,
    DuplicateColumn,
    ForeignStream,
    InvalidArgument,
    JoinWithoutKeys,
)
from tidegate.pipeline.aggregates import Grouping, split_columns
from tidegate.pipeline.graph import CycleFound, upstream_first
from tidegate.pipeline.names import (
    column_names,
    first_repeated,
    is_identifier,
    named_texts,
    texts,
)
from tidegate.pipeline.nodes import (
    HOWS,
    STAR,
    Aggregate,
    Distinct,
    Filter,
    How,
    Join,
    Node,
    Order,
    Reference,
    Select,
    SelectColumn,
    Sink,
    Top,
    Transform,
    Union,
    inputs_of,
)
from tidegate.pipeline.source_line import user_line
from tidegate.pipeline.sql import between_commas, reads_of_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidegate.errors import SourceLine
    from tidegate.pipeline.nodes import Transformation
    from tidegate.pipeline.pipeline import Pipeline

_ORDER = re.compile(r"(.+?)\s+(asc|desc)", re.IGNORECASE | re.DOTALL)
_NULLS = re.compile(r"(.+?)(\s+(?:asc|desc))?\s+nulls\s+\w+", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """Rows at one point of a pipeline. Operators return new streams and do not modify this one."""

    pipeline: Pipeline = field(repr=False)
    node: Node

    def filter(self, condition: str) -> Stream:
        """The rows for which an SQL condition is true."""
        at = user_line()
        reads = reads_of_rows("a filter", condition, at)
        return self._then(Filter(at, self.node, condition, reads))

    def select(
        self, /, *names: str, columns: Mapping[str, str] | None = None, **sql: str
    ) -> Stream:
        """Columns by name, and named SQL expressions.

        `"*"` keeps every column, except those that an expression replaces. Names that are not valid
        as a keyword go into `columns`.

            sales.select("store_id", month="date_format(created_at, 'yyyy-MM')")
        """
        at = user_line()
        selected = [_selected(name, at) for name in names]
        given = named_texts("select", columns, at)
        computed = {**given, **sql}
        expressions = [
            SelectColumn(name, text, reads_of_rows("a select", text, at))
            for name, text in computed.items()
        ]
        _refuse_columns("select", [*selected, *expressions], at, repeated=set(given) & set(sql))
        return self._then(Select(at, self.node, (*selected, *expressions)))

    def transform(self, function: Transformation) -> Stream:
        """The result of `function`, any stateless DataFrame → DataFrame.

        It is called on parts of the stream, and again after a crash, so its result for a row must
        depend only on that row.
        """
        at = user_line()
        if not callable(function):
            raise InvalidArgument(at, "transform", "function", function, "a function")
        return self._then(Transform(at, self.node, function))

    def aggregate(
        self,
        /,
        by: str | Iterable[str] = (),
        *,
        shards: int | None = None,
        exact: bool = False,
        columns: Mapping[str, str] | None = None,
        **aggregates: str,
    ) -> Stream:
        """One row per distinct `by`, with SQL aggregates under their names; one row without `by`.

        `shards` is the number of slices of the groups, by default that of the pipeline. `exact`
        refuses every aggregate whose digits could depend on the order of rows. Names that are not
        valid as a keyword go into `columns`.

            sales.aggregate(by="store_id", total="sum(amount)", sales="count(*)")
        """
        at = user_line()
        keys = column_names("aggregate", "by", by, at)
        check_shards("aggregate", shards, at)
        more = named_texts("aggregate", columns, at)
        given = {**more, **aggregates}
        repeated = first_repeated([*keys, *given, *(set(more) & set(aggregates))])
        if repeated is not None:
            raise DuplicateColumn(at, "aggregate", repeated)
        parts = split_columns(given, Grouping(at, keys, exact))
        if not keys and not parts:
            raise InvalidArgument(at, "aggregate", "by", by, "at least one key or aggregate")
        return self._then(Aggregate(at, self.node, keys, parts, shards, exact))

    def distinct(self) -> Stream:
        """Each row once, as SELECT DISTINCT: rows are the same if all of their columns are.

        The rows are spread over the pipeline's shards. To keep one row per key, use `top(1, ...)`.
        """
        return self._then(Distinct(user_line(), self.node))

    def top(self, n: int, *, by: str | Iterable[str], per: str | Iterable[str] = ()) -> Stream:
        """The first `n` rows in the order `by`, for each distinct `per`.

        `by` is SQL such as "sold desc, item_id", also as a list; the first order must have a
        direction, because the top of a bare column is ambiguous. Rows that still tie are ordered
        by their other columns, so the result is deterministic.
        """
        at = user_line()
        if not _is_count(n):
            raise InvalidArgument(at, "top", "n", n, "a whole number, at least 1")
        orders = _orders(by, at)
        return self._then(Top(at, self.node, n, orders, column_names("top", "per", per, at)))

    def join(self, other: Stream, *, on: str | Iterable[str] = (), how: How = "inner") -> Stream:
        """Pairs of rows that agree in the columns `on`, which both sides have.

        `how` is inner, left, right, full, semi or anti, as in SQL. The key columns appear once.
        """
        at = user_line()
        keys = column_names("join", "on", on, at)
        if not keys:
            raise JoinWithoutKeys(at)
        if how not in HOWS:
            raise InvalidArgument(at, "join", "how", how, f"one of {', '.join(HOWS)}")
        self._refuse_foreign(other, at)
        return self._then(Join(at, self.node, other.node, keys, how))

    def union(self, *others: Stream) -> Stream:
        """All rows of this stream and the others, duplicates included, columns matched by name."""
        at = user_line()
        if not others:
            raise InvalidArgument(at, "union", "others", others, "at least one other stream")
        for other in others:
            self._refuse_foreign(other, at)
        return self._then(Union(at, (self.node, *(other.node for other in others))))

    def named(self, name: str) -> Stream:
        """This stream, registered for `Pipeline.stream(name)`, also for earlier references."""
        at = user_line()
        self._refuse_cycle(name, at)
        self.pipeline.streams.declare(name, self.node, at)
        return self

    def sink(self, name: str) -> None:
        """Publish the rows under `name` as a result of the pipeline."""
        at = user_line()
        self.pipeline.sinks.declare(name, Sink(at, self.node, name), at)

    def _then(self, node: Node) -> Stream:
        return Stream(self.pipeline, node)

    def _refuse_foreign(self, other: Stream, at: SourceLine) -> None:
        if not isinstance(other, Stream):
            raise InvalidArgument(at, "combine", "other", other, "a stream of this pipeline")
        if other.pipeline is not self.pipeline:
            raise ForeignStream(at, self.pipeline.name, other.pipeline.name)

    def _refuse_cycle(self, name: str, at: SourceLine) -> None:
        """Only naming a stream can close a cycle of references."""
        streams = {**self.pipeline.streams, name: self.node}

        def reads(node: Node) -> Iterable[Node]:
            if isinstance(node, Reference):
                return [streams[node.name]] if node.name in streams else []
            return inputs_of(node)

        try:
            upstream_first([self.node], reads)
        except CycleFound as cycle:
            raise CyclicPipeline(at, describe_cycle(cycle.nodes)) from None


def describe_cycle(nodes: Iterable[Node]) -> str:
    """A cycle of nodes as text, each with its line."""
    names = [f"{type(node).__name__.lower()} (line {node.at.line})" for node in nodes]
    return " reads ".join([*names, names[0]])


def check_shards(operator: str, shards: int | None, at: SourceLine) -> None:
    """Raise `InvalidArgument` unless `shards` is None or at least 1."""
    if shards is not None and not _is_count(shards):
        raise InvalidArgument(at, operator, "shards", shards, "a whole number, at least 1")


def _is_count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 1


def _selected(name: str, at: SourceLine) -> SelectColumn:
    if name == STAR:
        return SelectColumn(STAR, STAR, ())
    if not is_identifier(name):
        expected = "the name of a column; give an expression a name: total='price * 2'"
        raise InvalidArgument(at, "select", "names", name, expected)
    return SelectColumn(name, name, (name,))


def _refuse_columns(
    operator: str, columns: list[SelectColumn], at: SourceLine, repeated: set[str]
) -> None:
    if not columns:
        raise InvalidArgument(at, operator, "columns", (), "at least one column")
    twice = first_repeated([*(column.name for column in columns), *repeated])
    if twice is not None:
        raise DuplicateColumn(at, operator, twice)


def _orders(by: str | Iterable[str], at: SourceLine) -> tuple[Order, ...]:
    given = texts("top", "by", by, at)
    orders = [it.strip() for it in (between_commas(by, at) if isinstance(by, str) else given)]
    _refuse_nulls(orders, by, at)
    first = orders[0] if orders else ""
    if not _ORDER.fullmatch(first):
        key = first or "sold"
        expected = f"a direction in the first order: '{key} desc' or '{key} asc'"
        raise InvalidArgument(at, "top", "by", by, expected)
    return tuple(_order(text, at) for text in orders)


def _refuse_nulls(orders: Iterable[str], by: object, at: SourceLine) -> None:
    for text in orders:
        if (found := _NULLS.fullmatch(text)) is not None:
            plain = f"{found[1]} {(found[2] or 'desc').strip()}"
            expected = (
                f"an order without NULLS (Spark has them first in asc, last in desc): '{plain}'"
            )
            raise InvalidArgument(at, "top", "by", by, expected)


def _order(text: str, at: SourceLine) -> Order:
    found = _ORDER.fullmatch(text)
    sql, direction = found.groups() if found else (text, "asc")
    return Order(sql, direction.lower() == "desc", reads_of_rows("a top", sql, at))
