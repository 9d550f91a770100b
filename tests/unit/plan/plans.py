"""Shared by the tests of rules: a plan before the rule, and a short way to write what follows."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from tidegate.plan import RULES, Move, logical_plan
from tidegate.plan.lower import lower
from tidegate.plan.physical import PhysicalBarrier, PhysicalResultCollect, PhysicalStage

if TYPE_CHECKING:
    import tidegate as tg
    from tidegate.plan import Edge, PhysicalNode, PhysicalPlan
    from tidegate.plan.planner import Rule


def before(pipeline: tg.Pipeline, rule: Rule) -> PhysicalPlan:
    """The plan that `rule` gets: lowered, and improved by all rules that come before it."""
    earlier = RULES[: RULES.index(rule)]
    return reduce(lambda plan, each: each(plan), earlier, lower(logical_plan(pipeline)))


def shape(plan: PhysicalPlan) -> list[str]:
    """One line per node: id, steps, shards, and where its rows come from."""
    return [_line(node) for node in plan.nodes]


def _line(node: PhysicalNode) -> str:
    return f"{node.id} {_what(node)}" + "".join(f" <- {_edge(edge)}" for edge in node.inputs)


def _what(node: PhysicalNode) -> str:
    match node:
        case PhysicalStage(steps=steps, shards=shards):
            return f"[{', '.join(type(step).__name__ for step in steps)}] x{shards}"
        case PhysicalBarrier(upstream_count=count, shards=shards):
            return f"barrier({count}) x{shards}"
        case PhysicalResultCollect():
            return "collect"


def _edge(edge: Edge) -> str:
    return edge.upstream if edge.move is Move.FORWARD else f"{edge.move.value} {edge.upstream}"
