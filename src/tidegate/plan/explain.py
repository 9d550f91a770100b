"""EXPLAIN: a plan as readable text."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from tidegate.pipeline import nodes as declared
from tidegate.plan import wording
from tidegate.plan.encode import plan_hash
from tidegate.plan.physical import (
    Apply,
    CompactAggregate,
    FinalDistinct,
    FinalTop,
    MergeAggregate,
    Move,
    PartialAggregate,
    PartialDistinct,
    PartialTop,
    PhysicalBarrier,
    PhysicalJoin,
    PhysicalResultCollect,
    PhysicalStage,
    PhysicalUnion,
    Project,
    Scan,
    Where,
    WholeAggregate,
    WriteSink,
    inputs_by_operator,
    qualified_name,
)
from tidegate.plan.tree import draw
from tidegate.plan.wording import by_name, counted, listed, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tidegate.plan.logical import LogicalPlan
    from tidegate.plan.physical import PhysicalEdge, PhysicalNode, PhysicalOperator, PhysicalPlan

_HASH = 12


def explain_physical(plan: PhysicalPlan, notes: Mapping[str, Sequence[str]] | None = None) -> str:
    """The collector on top, sources at the leaves; the operators of a stage in the same direction.

    `notes` are lines to add to nodes, by node id.
    """
    noted = notes or {}
    stages = sum(1 for _ in plan.stages)
    barriers = sum(isinstance(node, PhysicalBarrier) for node in plan.nodes)
    title = (
        f"Physical plan of {plan.pipeline}: {counted(stages, 'stage')},"
        f" {counted(barriers, 'barrier')}, shards={plan.shards}, hash {plan_hash(plan)[:_HASH]}"
    )
    tree = draw(
        plan.root.id,
        lambda node: [*_physical(plan.by_id[node], plan), *noted.get(node, ())],
        lambda node: [edge.upstream for edge in plan.by_id[node].inputs],
    )
    return "\n".join([title, "", *tree])


def explain_logical(plan: LogicalPlan) -> str:
    """The sinks on top, sources at the leaves, one operator per line."""
    root = f"Pipeline {plan.pipeline}"
    operators = counted(len(plan.nodes), "operator")
    title = f"Logical plan of {plan.pipeline}: {operators}, shards={plan.shards}"
    sinks = [sink.id for sink in plan.sinks]
    tree = draw(
        root,
        lambda node: [root] if node == root else _logical(node, plan.by_id[node].operator),
        lambda node: sinks if node == root else plan.by_id[node].inputs,
    )
    return "\n".join([title, "", *tree])


# --- physical --------------------------------------------------------------------------------


def _physical(node: PhysicalNode, plan: PhysicalPlan) -> list[str]:
    head = f"{type(node).__name__} {node.id}"
    match node:
        case PhysicalStage():
            inputs = reversed(inputs_by_operator(node.operators, plan.arriving(node)))
            operators = zip(reversed(node.operators), inputs, strict=True)
            lines = [line for operator, edges in operators for line in _operator(operator, edges)]
            return [f"{head}  shards={node.shards}", *lines]
        case PhysicalBarrier():
            edges = listed([_edge(edge) for edge in node.inputs])
            release = f"released_by={node.released_by}  bound={node.bound}"
            return [f"{head}  upstream_count={node.upstream_count}  inputs={edges}", release]
        case PhysicalResultCollect():
            return [f"{head}  sinks={listed(node.sinks)}"]
        case _:
            assert_never(node)


def _edge(edge: PhysicalEdge) -> str:
    match edge.move:
        case Move.FORWARD:
            return edge.upstream
        case Move.GATHER:
            return f"{edge.upstream} gather"
        case Move.EXCHANGE:
            return f"{edge.upstream} exchange by={listed(edge.keys)}"
        case _:
            assert_never(edge.move)


def _operator(  # noqa: C901, PLR0912  one case per operator
    operator: PhysicalOperator, inputs: Sequence[PhysicalEdge]
) -> list[str]:
    """The line of an operator; aggregates add one per column."""
    details: Iterable[str] = ()
    match operator:
        case Scan(source=source, columns=fields, event_time=time):
            text = f"{source} {listed([field.name for field in fields])} {time or ''}"
        case Where(sql=sql):
            text = shortened(sql)
        case Project(columns=columns):
            text = by_name(columns)
        case Apply(function=function):
            text = qualified_name(function)
        case WholeAggregate(by=by, columns=aggregates):
            text, details = f"by={listed(by)}", wording.whole(aggregates)
        case PartialAggregate(by=by, columns=aggregates):
            text, details = f"by={listed(by)}", wording.partial(aggregates)
        case MergeAggregate(by=by, columns=aggregates):
            text, details = f"by={listed(by)}", wording.merged(aggregates)
        case CompactAggregate(by=by, columns=aggregates):
            text, details = f"by={listed(by)}", wording.partial(aggregates)
        case PartialDistinct() | FinalDistinct():
            text = ""
        case PartialTop(n=n, by=order, per=per) | FinalTop(n=n, by=order, per=per):
            text = _top(n, order, per)
        case PhysicalJoin(on=on, how=how):
            text = f"{how} on={listed(on)} right={inputs[-1].upstream}"
        case PhysicalUnion(columns=names):
            text = listed(names) if names else ""
        case WriteSink(sink=sink):
            text = sink
        case _:
            assert_never(operator)
    head = f"{type(operator).__name__} {text}".rstrip()
    return [head, *(f"    {line}" for line in details)]


def _top(n: int, by: Sequence[declared.Order], per: Sequence[str]) -> str:
    return f"{n:,} by={listed(by)}" + (f" per={listed(per)}" if per else "")


# --- logical ---------------------------------------------------------------------------------


def _logical(node: str, operator: declared.Operator) -> list[str]:  # noqa: C901  one case per operator
    details: Iterable[str] = ()
    match operator:
        case declared.Source(name=name, schema=schema, event_time=time):
            fields = listed([f"{field.name} {field.type}" for field in schema])
            text = f"{name} {fields} {time or ''}"
        case declared.Filter(condition=condition):
            text = shortened(condition)
        case declared.Select(columns=columns):
            text = by_name(columns)
        case declared.Transform(function=function):
            text = qualified_name(function)
        case declared.Aggregate(by=by, columns=aggregates, shards=shards, exact=exact):
            text = f"by={listed(by)}" + (f" shards={shards}" if shards else "")
            text += " exact" if exact else ""
            details = wording.whole(aggregates)
        case declared.Top(n=n, by=order, per=per):
            text = _top(n, order, per)
        case declared.Join(on=on, how=how):
            text = f"{how} on={listed(on)}"
        case declared.Distinct() | declared.Union():
            text = ""
        case declared.Sink(name=name):
            text = name
        case _:
            assert_never(operator)
    return [f"{type(operator).__name__} {node}  {text}".rstrip(), *details]
