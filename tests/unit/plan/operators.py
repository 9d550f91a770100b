"""An example of every operator, declared and physical."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import tidegate as tg
from tidegate.pipeline import nodes
from tidegate.plan import logical_plan, physical_plan
from tidegate.plan.lower import lower
from tidegate.plan.physical import CompactAggregate, PhysicalOperator, WholeAggregate

Declare = Callable[[tg.Stream, tg.Stream], tg.Stream]


def keep(rows: object) -> object:
    return rows


EXAMPLES: dict[type[nodes.Operator], Declare] = {
    nodes.Source: lambda sales, _: sales,
    nodes.Filter: lambda sales, _: sales.filter("n > 0"),
    nodes.Select: lambda sales, _: sales.select("id", twice="n * 2"),
    nodes.Transform: lambda sales, _: sales.transform(keep),
    nodes.Aggregate: lambda sales, _: sales.aggregate(by="id", total="sum(n)"),
    nodes.Distinct: lambda sales, _: sales.distinct(),
    nodes.Top: lambda sales, _: sales.top(3, by="n desc"),
    nodes.Join: lambda sales, items: sales.join(items.select("id"), on="id"),
    nodes.Union: lambda sales, items: sales.union(items),
    nodes.Sink: lambda sales, _: sales,
}


def pipeline_with(kind: type[nodes.Operator]) -> tg.Pipeline:
    pipeline = tg.Pipeline("shop", shards=2)
    sales, items = (pipeline.source(it, "id bigint, n int") for it in ("sales", "items"))
    EXAMPLES[kind](sales, items).sink("out")
    items.sink("items")
    return pipeline


def physical_examples() -> dict[type, PhysicalOperator]:
    found: dict[type, PhysicalOperator] = {}
    for kind in EXAMPLES:
        pipeline = pipeline_with(kind)
        for plan in (lower(logical_plan(pipeline)), physical_plan(pipeline)):
            for stage in plan.stages:
                found |= {type(operator): operator for operator in stage.operators}
    whole = cast("WholeAggregate", found[WholeAggregate])
    return found | {CompactAggregate: CompactAggregate(whole.by, whole.columns)}


PHYSICAL = physical_examples()
