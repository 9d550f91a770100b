"""Plans a declared pipeline: logical plan, lowering, rules."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

from tidegate.plan.logical import logical_plan
from tidegate.plan.lower import lower
from tidegate.plan.rules.fuse_joins import fuse_joins
from tidegate.plan.rules.fuse_narrow import fuse_narrow
from tidegate.plan.rules.insert_barrier_for_fan_in import insert_barrier_for_fan_in
from tidegate.plan.rules.prune_columns import prune_columns
from tidegate.plan.rules.repeat_narrow import repeat_narrow
from tidegate.plan.rules.split_aggregates import split_aggregates
from tidegate.plan.rules.split_distincts import split_distincts
from tidegate.plan.rules.split_tops import split_tops

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.pipeline import Pipeline
    from tidegate.plan.inexact import Floating
    from tidegate.plan.physical import PhysicalPlan

Rule: TypeAlias = "Callable[[PhysicalPlan], PhysicalPlan]"

RULES: tuple[Rule, ...] = (
    repeat_narrow,
    prune_columns,
    split_aggregates,
    split_distincts,
    split_tops,
    fuse_narrow,
    fuse_joins,
    insert_barrier_for_fan_in,
)
"""Applied in this order. Shared scans are repeated first, so that each copy reads only its own
columns. Barriers come last, when the edges are final."""


def physical_plan(
    pipeline: Pipeline, *, shards: int | None = None, floating: Floating | None = None
) -> PhysicalPlan:
    """The plan of stages, barriers and the collector; arguments as for `logical_plan`."""
    lowered = lower(logical_plan(pipeline, shards=shards, floating=floating))
    return reduce(lambda plan, rule: rule(plan), RULES, lowered)
