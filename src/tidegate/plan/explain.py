"""EXPLAIN: a plan as a text that people read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.pipeline import nodes as declared
from tidegate.plan import physical, wording
from tidegate.plan.encode import plan_hash
from tidegate.plan.physical import (
    Move,
    PhysicalBarrier,
    PhysicalResultCollect,
    PhysicalStage,
    inputs_by_step,
    qualified_name,
)
from tidegate.plan.tree import draw
from tidegate.plan.wording import by_name, checkpoint, counted, listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tidegate.plan.logical import LogicalPlan
    from tidegate.plan.physical import Edge, PhysicalNode, PhysicalPlan, Step

_HASH = 12


def explain_physical(plan: PhysicalPlan, notes: Mapping[str, Sequence[str]] | None = None) -> str:
    """The collector on top, sources at the leaves; the steps of a stage in the same direction.

    `notes` are lines to add to nodes, by their ids.
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
            inputs = reversed(inputs_by_step(node.steps, plan.arriving(node)))
            steps = zip(reversed(node.steps), inputs, strict=True)
            lines = [line for step, edges in steps for line in _step(step, edges)]
            return [f"{head}  shards={node.shards}", *lines]
        case PhysicalBarrier():
            edges = listed([_edge(edge) for edge in node.inputs])
            release = f"released_by={node.released_by}  bound={node.bound}"
            return [f"{head}  upstream_count={node.upstream_count}  inputs={edges}", release]
        case PhysicalResultCollect():
            return [f"{head}  sinks={listed(node.sinks)}"]


def _edge(edge: Edge) -> str:
    match edge.move:
        case Move.FORWARD:
            return edge.upstream
        case Move.GATHER:
            return f"{edge.upstream} gather"
        case Move.EXCHANGE:
            return f"{edge.upstream} exchange by={listed(edge.keys)}"


def _step(step: Step, inputs: Sequence[Edge]) -> Iterator[str]:
    verb = type(step).__name__
    match step:
        case physical.PartialAggregate(by=by, columns=columns):
            yield f"{verb} by={listed(by)}"
            yield from _indented(wording.partial(columns))
        case physical.MergeAggregate(by=by, columns=columns):
            yield f"{verb} by={listed(by)}"
            yield from _indented(wording.merged(columns))
        case physical.Aggregate(by=by, columns=columns):
            yield f"{verb} by={listed(by)}"
            yield from _indented(wording.whole(columns))
        case physical.Join():
            yield f"{verb} {_keyed(step)} right={inputs[-1].upstream}"
        case _:
            yield f"{verb} {_arguments(step)}".rstrip()


def _arguments(step: Step) -> str:
    match step:
        case physical.Scan(source=source, columns=columns, event_time=time):
            return f"{source} {listed([field.name for field in columns])} {time or ''}"
        case physical.Where(sql=sql):
            return checkpoint(sql)
        case physical.Project(columns=columns):
            return by_name(columns)
        case physical.Apply(function=function):
            return qualified_name(function)
        case physical.Union(columns=names):
            return listed(names) if names else ""
        case _:
            return _keyed(step)


def _keyed(step: Step | declared.Node) -> str:
    """Operators that are the same in both plans."""
    match step:
        case physical.Top(n=n, by=by, per=per) | physical.PartialTop(n=n, by=by, per=per):
            return _top(n, by, per)
        case declared.Top(n=n, by=by, per=per):
            return _top(n, by, per)
        case physical.Join(on=on, how=how) | declared.Join(on=on, how=how):
            return f"{how} on={listed(on)}"
        case physical.Write(sink=name) | declared.Sink(name=name):
            return name
        case _:
            return ""


def _top(n: int, by: Sequence[declared.Order], per: Sequence[str]) -> str:
    return f"{n:,} by={listed(by)}" + (f" per={listed(per)}" if per else "")


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return (f"    {line}" for line in lines)


# --- logical ---------------------------------------------------------------------------------


def _logical(node: str, operator: declared.Node) -> list[str]:
    head = f"{type(operator).__name__} {node}"
    details: list[str] = []
    match operator:
        case declared.Source(name=name, schema=schema, event_time=time):
            fields = listed([f"{field.name} {field.type}" for field in schema])
            text = f"{name} {fields} {time or ''}"
        case declared.Filter(condition=condition):
            text = checkpoint(condition)
        case declared.Select(columns=columns):
            text = by_name(columns)
        case declared.Transform(function=function):
            text = qualified_name(function)
        case declared.Aggregate(by=by, columns=aggregates, shards=shards, exact=exact):
            text = f"by={listed(by)}" + (f" shards={shards}" if shards else "")
            text += " exact" if exact else ""
            details = list(wording.whole(aggregates))
        case _:
            text = _keyed(operator)
    return [f"{head}  {text}".rstrip(), *details]
