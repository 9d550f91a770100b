"""Shared by the tests of rules: a plan before the rule, and short descriptions of plans."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from tidegate.plan import RULES, Move, logical_plan
from tidegate.plan.lower import lower
from tidegate.plan.physical import (
    MergeAggregate,
    PartialAggregate,
    PartialDistinct,
    PartialTop,
    PhysicalBarrier,
    PhysicalResultCollect,
    PhysicalStage,
    WholeAggregate,
    WriteSink,
    inputs_by_operator,
)

if TYPE_CHECKING:
    from collections.abc import Hashable

    import tidegate as tg
    from tidegate.plan import PhysicalEdge, PhysicalNode, PhysicalPlan
    from tidegate.plan.physical import PhysicalOperator
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
        case PhysicalStage(operators=operators, shards=shards):
            return f"[{', '.join(type(operator).__name__ for operator in operators)}] x{shards}"
        case PhysicalBarrier(upstream_count=count, shards=shards):
            return f"barrier({count}) x{shards}"
        case PhysicalResultCollect():
            return "collect"


def _edge(edge: PhysicalEdge) -> str:
    return edge.upstream if edge.move is Move.FORWARD else f"{edge.move.value} {edge.upstream}"


_LEFT_OUT = frozenset({"columns", "exact", "reads"})


class Meanings:
    """What is computed for each sink, as a number that is the same for the same formula.

    Formulas are what steps do to what their inputs are, down to the scans, however the steps are
    spread over stages. Columns are left out: plans differ in which of them they drop.
    """

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def of(self, plan: PhysicalPlan) -> dict[str, int]:
        """The meaning of every sink of `plan`."""
        meanings: dict[str, int] = {}
        sinks: dict[str, int] = {}
        for stage in plan.stages:
            inputs = [meanings[edge.upstream] for edge in plan.arriving(stage)]
            meanings[stage.id] = self._stage(stage, inputs)
            if isinstance(stage.operators[-1], WriteSink):
                assert stage.operators[-1].sink not in sinks
                sinks[stage.operators[-1].sink] = meanings[stage.id]
        return sinks

    def _stage(self, stage: PhysicalStage, inputs: list[int]) -> int:
        first, *rest = inputs_by_operator(stage.operators, inputs)
        meaning = self._step(stage.operators[0], first)
        for step, right in zip(stage.operators[1:], rest, strict=True):
            meaning = self._step(step, (meaning, *right))
        return meaning

    def _step(self, step: PhysicalOperator, inputs: tuple[int, ...]) -> int:
        if isinstance(step, PartialAggregate | PartialDistinct | PartialTop):
            (rows,) = inputs
            return rows
        formula = (*_operator(step), inputs)
        return self._numbers.setdefault(formula, len(self._numbers))


def _operator(step: PhysicalOperator) -> tuple[Hashable, ...]:
    kind = WholeAggregate if isinstance(step, MergeAggregate) else type(step)
    shown = [name for name in step.__slots__ if name not in _LEFT_OUT]
    return kind.__name__, *(getattr(step, name) for name in shown)
