"""A physical plan becomes processors and links; its own barriers forward END."""

from __future__ import annotations

import pytest

from tidegate.plan import PhysicalBarrier, PhysicalPlan
from tidegate.plan import physical_plan as plan_of
from tidegate.runtime.task_graph import build_task_graph, edges_into, task_names
from tidegate_examples.coffee import pipeline as coffee


def barriers(plan: PhysicalPlan) -> list[PhysicalBarrier]:
    return [node for node in plan.nodes if isinstance(node, PhysicalBarrier)]


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_every_barrier_expects_exactly_the_channels_that_arrive(shards: int) -> None:
    plan = plan_of(coffee, shards=shards)
    task_graph = build_task_graph(plan)
    assert barriers(plan)
    for barrier in barriers(plan):
        for task in task_names(barrier):
            assert len(edges_into(task_graph.edges, task)) == barrier.upstream_count


@pytest.mark.parametrize("shards", [1, 3])
def test_whatever_is_no_barrier_has_one_arriving_channel_at_most(shards: int) -> None:
    plan = plan_of(coffee, shards=shards)
    task_graph = build_task_graph(plan)
    for node in plan.nodes:
        if not isinstance(node, PhysicalBarrier):
            assert all(len(edges_into(task_graph.edges, task)) <= 1 for task in task_names(node))


def test_every_source_is_read_by_all_shards_of_its_stages() -> None:
    task_graph = build_task_graph(plan_of(coffee, shards=2))
    assert set(task_graph.sources) == {
        "transactions",
        "transaction_items",
        "menu_items",
        "stores",
        "users",
    }
    for readers in task_graph.sources.values():
        assert readers
        assert all(len(tasks) == 2 for tasks in readers)
