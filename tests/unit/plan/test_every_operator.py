"""Every operator, in every place that has to know it.

`tests.unit.plan.operators` has an example of each operator. A new operator without an example fails
here, and mypy refuses one that a `match` over operators does not handle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast, get_args

import pytest

from tests.unit.plan.operators import PHYSICAL, pipeline_with
from tidegate.pipeline import nodes
from tidegate.plan import (
    PhysicalPlan,
    PhysicalStage,
    difference,
    encoded,
    explain_logical,
    explain_physical,
    logical_json,
    logical_plan,
    physical_json,
    physical_plan,
    plan_hash,
)
from tidegate.plan.compatibility.operator_words import operator_words
from tidegate.plan.physical import (
    NARROW,
    STATEFUL,
    CompactAggregate,
    PhysicalOperator,
    PhysicalUnion,
    Scan,
    WholeAggregate,
)
from tidegate.plan.rules.prune_columns import prune_columns
from tidegate.spark.analyze.error_wording import kind_of, rejected_part
from tidegate.spark.jobs.job_input import can_be_joint

UNCLASSIFIED = {Scan, PhysicalUnion, WholeAggregate, CompactAggregate}
"""Neither narrow nor stateful: operators that begin a stage, or are in no final plan."""


declared = pytest.mark.parametrize("kind", get_args(nodes.Operator))
physical = pytest.mark.parametrize("kind", get_args(PhysicalOperator))


def plan_with(operator: PhysicalOperator) -> PhysicalPlan:
    """A plan with a stage of only this operator, behind the scan of the first source."""
    plan = physical_plan(pipeline_with(nodes.Join))
    nodes_ = [
        replace(node, operators=(operator,))
        if isinstance(node, PhysicalStage) and node.inputs
        else node
        for node in plan.nodes
    ]
    return replace(plan, nodes=tuple(nodes_))


@declared
def test_every_declared_operator_is_planned_and_explained(kind: type[nodes.Operator]) -> None:
    pipeline = pipeline_with(kind)
    logical = logical_plan(pipeline)
    assert kind.__name__ in {type(node.operator).__name__ for node in logical.nodes}
    assert f"{kind.__name__} n" in explain_logical(logical)
    plain = cast("list[dict[str, Any]]", logical_json(logical)["nodes"])
    assert kind.__name__ in {node["kind"] for node in plain}
    plan = physical_plan(pipeline)
    assert explain_physical(plan)
    assert plan_hash(plan) == plan_hash(physical_plan(pipeline_with(kind)))
    assert difference(encoded(plan), encoded(plan)).lines == ()


@declared
def test_every_declared_operator_has_a_name_and_parts_in_errors(
    kind: type[nodes.Operator],
) -> None:
    plan = logical_plan(pipeline_with(kind))
    (operator, *_) = (it.operator for it in plan.nodes if isinstance(it.operator, kind))
    assert kind_of(operator) == kind.__name__.lower()
    assert rejected_part(operator, ()) or isinstance(operator, nodes.Union | nodes.Sink)


@physical
def test_every_physical_operator_is_explained_and_encoded(kind: type[PhysicalOperator]) -> None:
    plan = plan_with(PHYSICAL[kind])
    assert f"    {kind.__name__}" in explain_physical(plan)
    stages = cast("list[dict[str, Any]]", physical_json(plan)["nodes"])
    (operator, *_) = (
        it for stage in stages for it in stage.get("operators", ()) if it["kind"] == kind.__name__
    )
    assert operator_words(operator) != kind.__name__


@physical
def test_every_physical_operator_is_known_to_column_pruning(kind: type[PhysicalOperator]) -> None:
    operators = {
        type(it)
        for stage in prune_columns(plan_with(PHYSICAL[kind])).stages
        for it in stage.operators
    }
    assert kind in operators


@physical
def test_every_physical_operator_is_narrow_or_stateful_or_neither_on_purpose(
    kind: type[PhysicalOperator],
) -> None:
    assert [kind in NARROW, kind in STATEFUL, kind in UNCLASSIFIED].count(True) == 1


@physical
def test_only_functions_of_users_keep_an_operator_from_a_joint_job(
    kind: type[PhysicalOperator],
) -> None:
    assert can_be_joint([PHYSICAL[kind]]) is (kind.__name__ != "Apply")


@dataclass(frozen=True, slots=True)
class Unknown:
    """An operator that is in no `match`."""


def test_an_unknown_operator_never_runs_in_a_joint_job() -> None:
    unknown = cast("PhysicalOperator", Unknown())
    assert not can_be_joint([unknown])
    assert not can_be_joint([PHYSICAL[Scan], unknown])


@pytest.mark.parametrize("use", [explain_physical, prune_columns])
def test_an_unknown_operator_is_an_error_elsewhere(use: Callable[[PhysicalPlan], object]) -> None:
    plan = plan_with(cast("PhysicalOperator", Unknown()))
    with pytest.raises(AssertionError, match="unreachable"):
        use(plan)
