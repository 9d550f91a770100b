"""Whatever is declared: barriers where channels meet, rules that settle, plans that repeat."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tests.unit.plan.plans import Meanings
from tidegate.pipeline.nodes import Source
from tidegate.plan import (
    RULES,
    LogicalPlan,
    PhysicalBarrier,
    PhysicalNode,
    PhysicalPlan,
    PhysicalResultCollect,
    PhysicalStage,
    explain_logical,
    explain_physical,
    logical_json,
    logical_plan,
    physical_json,
    physical_plan,
    plan_hash,
)
from tidegate.plan.lower import lower
from tidegate.plan.physical import (
    FinalDistinct,
    MergeAggregate,
    PhysicalJoin,
    PhysicalOperator,
    Project,
    Scan,
    Where,
    inputs_by_operator,
)
from tidegate.plan.rules.fuse_joins import MOST_JOINS
from tidegate.plan.rules.repeat_narrow import MOST_COPIES

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = "k int, v decimal(10,2), w double"


def unchanged(rows: object) -> object:
    return rows


OPERATORS: dict[str, Callable[[tg.Stream, tg.Stream], tg.Stream]] = {
    "filter": lambda stream, _: stream.filter("k > 1"),
    "select": lambda stream, _: stream.select("k", v="v + 1", w="v * 2"),
    "star": lambda stream, _: stream.select("*", w="w * 2"),
    "transform": lambda stream, _: stream.transform(unchanged),
    "aggregate": lambda stream, _: stream.aggregate(by="k", v="sum(v)", w="avg(w)", shards=3),
    "total": lambda stream, _: stream.aggregate(k="max(k)", v="sum(v)", w="min(w)"),
    "distinct": lambda stream, _: stream.distinct(),
    "top": lambda stream, _: stream.top(2, by="v desc", per="k"),
    "join": lambda stream, other: stream.join(other.select("k"), on="k", how="left"),
    "union": lambda stream, other: stream.union(other),
    "self-join": lambda stream, _: stream.join(stream, on="k", how="semi"),
    "self-union": lambda stream, _: stream.union(stream, stream),
    "source": lambda stream, _: new_source(stream.pipeline),
}
"""Each gives one more stream; all streams have the columns k, v and w."""

steps = st.tuples(st.sampled_from(sorted(OPERATORS)), st.integers(0, 99), st.integers(0, 99))


def new_source(pipeline: tg.Pipeline) -> tg.Stream:
    return pipeline.source(f"source{len(pipeline.sources)}", SCHEMA)


@st.composite
def pipelines(draw: st.DrawFn) -> tg.Pipeline:
    """Random graphs: shared nodes, self-joins, several sources and sinks; every source is read."""
    recipe = draw(st.lists(steps, max_size=12))
    shards = draw(st.integers(1, 4))
    sinks = draw(st.lists(st.integers(0, 99), max_size=4))
    return build(recipe, shards, sinks)


def build(recipe: list[tuple[str, int, int]], shards: int, sinks: list[int]) -> tg.Pipeline:
    pipeline = tg.Pipeline("random", shards=shards)
    streams = [new_source(pipeline)]
    for operator, left, right in recipe:
        stream, other = streams[left % len(streams)], streams[right % len(streams)]
        streams.append(OPERATORS[operator](stream, other))
    for number, chosen in enumerate(sinks):
        streams[chosen % len(streams)].sink(f"sink{number}")
    for stream in streams:
        if isinstance(stream.node, Source):
            stream.sink(f"all-{stream.node.name}")
    return pipeline


def is_fan_in(plan: PhysicalPlan, node: PhysicalNode) -> bool:
    """Judged by what arrives at a node, through its barrier if it has one."""
    if isinstance(node, PhysicalBarrier):
        return False
    merging = MergeAggregate | FinalDistinct
    merges = isinstance(node, PhysicalStage) and isinstance(node.operators[0], merging)
    uppers = [plan.by_id[edge.upstream] for edge in node.inputs]
    guards = [upper for upper in uppers if isinstance(upper, PhysicalBarrier)]
    arriving = plan.upstream_count(guards[0]) if guards else plan.upstream_count(node)
    return arriving > 1 or merges


@given(pipelines())
def test_there_is_one_barrier_per_fan_in_and_none_elsewhere(pipeline: tg.Pipeline) -> None:
    plan = physical_plan(pipeline)
    for node in plan.nodes:
        uppers = [plan.by_id[edge.upstream] for edge in node.inputs]
        guards = [upper for upper in uppers if isinstance(upper, PhysicalBarrier)]
        assert len(guards) == int(is_fan_in(plan, node))
        if guards:
            assert len(node.inputs) == 1
            assert guards[0].shards == node.shards
            assert plan.readers[guards[0].id] == (node.id,)


@given(pipelines())
def test_a_barrier_counts_the_channels_that_arrive(pipeline: tg.Pipeline) -> None:
    plan = physical_plan(pipeline)
    for node in plan.nodes:
        if isinstance(node, PhysicalBarrier):
            assert node.upstream_count == plan.upstream_count(node)


@given(pipelines())
def test_every_rule_settles_at_once(pipeline: tg.Pipeline) -> None:
    plan = lower(logical_plan(pipeline))
    for rule in RULES:
        plan = rule(plan)
        assert rule(plan) == plan
    for rule in RULES:
        assert rule(plan) == plan


@given(pipelines())
def test_a_plan_is_ordered_and_ends_in_the_one_collector(pipeline: tg.Pipeline) -> None:
    plan = physical_plan(pipeline)
    seen: set[str] = set()
    for node in plan.nodes:
        assert {edge.upstream for edge in node.inputs} <= seen
        seen.add(node.id)
    assert len(seen) == len(plan.nodes)
    assert [node for node, readers in plan.readers.items() if not readers] == ["c"]


@given(pipelines())
def test_every_sink_gets_what_was_declared_whatever_the_stages(pipeline: tg.Pipeline) -> None:
    meanings = Meanings()
    declared = meanings.of(lower(logical_plan(pipeline)))
    plan = physical_plan(pipeline)
    assert meanings.of(plan) == declared
    assert isinstance(plan.root, PhysicalResultCollect)
    assert set(plan.root.sinks) == set(declared) == set(pipeline.sinks)


@given(pipelines())
def test_cheap_stages_are_shared_only_by_too_many_readers(pipeline: tg.Pipeline) -> None:
    plan = physical_plan(pipeline)
    for stage in plan.stages:
        readers = len(set(plan.readers[stage.id]))
        if isinstance(stage.operators[0], Scan) and is_cheap(stage.operators):
            assert readers == 1 or readers > MOST_COPIES
    for source in pipeline.sources:
        assert 1 <= sum(scans(stage, source) for stage in plan.stages) <= MOST_COPIES


def is_cheap(steps: tuple[PhysicalOperator, ...]) -> bool:
    return all(isinstance(step, Scan | Where | Project) for step in steps)


def scans(stage: PhysicalStage, source: str) -> bool:
    return isinstance(stage.operators[0], Scan) and stage.operators[0].source == source


@given(pipelines())
def test_every_operator_has_the_inputs_it_needs(pipeline: tg.Pipeline) -> None:
    plan = physical_plan(pipeline)
    for stage in plan.stages:
        first, *rest = inputs_by_operator(stage.operators, plan.arriving(stage))
        assert len(first) >= {Scan: 0, PhysicalJoin: 2}.get(type(stage.operators[0]), 1)
        assert [len(it) for it in rest] == [
            isinstance(it, PhysicalJoin) for it in stage.operators[1:]
        ]
        if any(rest):
            assert stage.shards == 1
            assert not isinstance(stage.operators[0], Scan)
        assert sum(isinstance(step, PhysicalJoin) for step in stage.operators) <= MOST_JOINS


@given(st.lists(steps, max_size=12), st.integers(1, 4), st.lists(st.integers(0, 99), max_size=4))
def test_the_same_declaration_gives_the_same_plan(
    recipe: list[tuple[str, int, int]], shards: int, sinks: list[int]
) -> None:
    one, two = (physical_plan(build(recipe, shards, sinks)) for _ in range(2))
    assert one == two
    assert plan_hash(one) == plan_hash(two)


@given(pipelines())
def test_explain_never_fails(pipeline: tg.Pipeline) -> None:
    logical: LogicalPlan = logical_plan(pipeline)
    plan = physical_plan(pipeline)
    texts = explain_logical(logical), explain_physical(plan)
    assert all(node.id in texts[0] for node in logical.nodes)
    assert all(f"{type(node).__name__} {node.id}" in texts[1] for node in plan.nodes)
    assert json.loads(json.dumps(logical_json(logical)))["plan"] == "logical"
    assert len(json.loads(json.dumps(physical_json(plan)))["nodes"]) == len(plan.nodes)
